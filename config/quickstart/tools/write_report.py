"""write_report (idempotent): the sales report as Markdown.

The same input gives the same bytes, and the file appears whole or not at all.
"""

import hashlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python3 -I leaves it out
import toolkit

import urllib.parse


def write_report(path, product, date_range, sales, targets, chart_path):
    check_sums(sales)
    report = "\n".join(
        [
            f"# Sales of {plain(product)}, {date_range['from']} to {date_range['to']}",
            "",
            *stale_note(targets),
            *table(sales["by_month"], toolkit.unique_months("targets.targets", targets["targets"])),
            "",
            # check_report looks for this line, letter for letter.
            f"Total: {sales['total_cents']} cents (EUR {toolkit.euros(sales['total_cents'])})",
            "",
            f"![Sales per month]({link(path, chart_path)})",
            "",
        ]
    ).encode()
    toolkit.write_atomically(path, report)
    return {
        "path": path,
        "bytes": len(report),
        "sha256": hashlib.sha256(report).hexdigest(),
        "total_cents": sales["total_cents"],
    }


def check_sums(sales):
    """A report whose table does not add up to its total must not be written."""
    toolkit.unique_months("sales.by_month", sales["by_month"])
    for part in ("by_month", "by_region"):
        total_cents = sum(entry["total_cents"] for entry in sales[part])
        if total_cents != sales["total_cents"]:
            raise toolkit.ArgumentError(
                f"sales.{part}: adds up to {total_cents} cents,"
                f" not to total_cents {sales['total_cents']}"
            )


def stale_note(targets):
    if not targets["stale"]:
        return []
    return [
        "> **Targets are stale.** They come from a snapshot of"
        f" {plain(targets['as_of'])}, not from the BI service.",
        "",
    ]


def table(months, targets):
    lines = [
        "| Month | Units | Sales (EUR) | Target (EUR) | Difference (EUR) |",
        "|---|---:|---:|---:|---:|",
    ]
    for entry in months:
        target = difference = "n/a"
        if entry["month"] in targets:
            target_cents = targets[entry["month"]]["target_cents"]
            target = toolkit.euros(target_cents)
            difference = toolkit.euros(entry["total_cents"] - target_cents)
        sales = toolkit.euros(entry["total_cents"])
        lines.append(
            f"| {entry['month']} | {entry['units']:,} | {sales} | {target} | {difference} |"
        )
    return lines


def plain(value):
    """Text that Markdown shows as it is."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>|#&!~" else char for char in value)


def link(report, chart):
    """The chart as seen from the report's own folder."""
    folder = os.path.dirname(os.path.abspath(report))
    return urllib.parse.quote(os.path.relpath(os.path.abspath(chart), folder))


SUMS = {"units": toolkit.count, "total_cents": toolkit.cents}


def euro(name, value):
    if value != "EUR":
        raise toolkit.ArgumentError(f"{name}: must be EUR")
    return value


SALES = toolkit.fields(
    {
        "rows": toolkit.count,
        "total_cents": toolkit.cents,
        "currency": euro,
        "by_month": toolkit.list_of(toolkit.fields({"month": toolkit.month, **SUMS}), count_min=1),
        "by_region": toolkit.list_of(toolkit.fields({"region": toolkit.text, **SUMS})),
    }
)
TARGETS = toolkit.fields(
    {
        "targets": toolkit.list_of(toolkit.TARGET),
        "stale": toolkit.flag,
        "as_of": toolkit.text,
    }
)

if __name__ == "__main__":
    toolkit.run(
        write_report,
        {
            "path": toolkit.path,
            "product": toolkit.text,
            "date_range": toolkit.date_range,
            "sales": SALES,
            "targets": TARGETS,
            "chart_path": toolkit.path,
        },
    )
