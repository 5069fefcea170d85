"""check_report (an observer's probe): does the report's total agree with the database?

It asks the database itself, and believes nothing that another tool said. A report that is absent
or wrong is an observation, so it exits 0 and says so; a database that can't be read is a failure.
"""

import contextlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python3 -I leaves it out
import toolkit

import re

REPORT_BYTES_MAX = 1024 * 1024
TOTAL = re.compile(r"^Total: ([0-9]{1,16}) cents \(EUR ([0-9,]+)\.([0-9]{2})\)$", re.MULTILINE)
STALE = re.compile(r"^> \*\*Targets are stale\.\*\* ", re.MULTILINE)


def check_report(path, database, product, date_range):
    if not os.path.lexists(path):
        return {"equal": False, "missing": True}
    report = read_report(path)
    report_total_cents = total_of(report)
    database_total_cents = total_sold(database, product, date_range)
    return {
        "report_total_cents": report_total_cents,
        "database_total_cents": database_total_cents,
        "equal": report_total_cents == database_total_cents,
        "stale_noted": STALE.search(report) is not None,
    }


def read_report(path):
    """Empty when it is no readable text: then it has no total either."""
    if not os.path.isfile(path):
        return ""
    with open(path, "rb") as file:
        return file.read(REPORT_BYTES_MAX).decode("utf-8", "replace")


def total_of(report):
    """None unless there is exactly one total, the same in cents and in euros."""
    totals = TOTAL.findall(report)
    if len(totals) != 1:
        return None
    cents, euros, rest = totals[0]
    return int(cents) if int(euros.replace(",", "") + rest) == int(cents) else None


def total_sold(database, product, date_range):
    with contextlib.closing(toolkit.open_read_only(database)) as sales:
        return sales.execute(
            "SELECT coalesce(sum(total_cents), 0) FROM sales"
            " WHERE product = ? AND sold_on >= ? AND sold_on <= ?",
            [product, date_range["from"], date_range["to"]],
        ).fetchone()[0]


if __name__ == "__main__":
    toolkit.run(
        check_report,
        {
            "path": toolkit.path,
            "database": toolkit.path,
            "product": toolkit.text,
            "date_range": toolkit.date_range,
        },
    )
