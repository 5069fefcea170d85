"""What the tests of the quickstart's tools share: each tool runs as the child process that the
runtime would start.
"""

import contextlib
import json
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import unittest

QUICKSTART = pathlib.Path(__file__).resolve().parent.parent
SALES_DB = QUICKSTART / "data" / "sales.db"
SNAPSHOT = QUICKSTART / "data" / "targets-snapshot.json"
CHILD_S_MAX = 120
QUARTER = {"from": "2026-01-01", "to": "2026-03-31"}
ASKED = {"product": "widget", "date_range": QUARTER}
MONTHS = ["2026-01", "2026-02", "2026-03"]
TARGETS = [{"month": month, "target_cents": 800_000} for month in MONTHS]


class ToolCase(unittest.TestCase):
    """A work directory of its own for each test, and a way to run a tool in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def child(self, tool, stdin, **env):
        script = QUICKSTART / "tools" / f"{tool}.py"
        return subprocess.run(
            [sys.executable, "-I", "-S", "-B", str(script)],
            input=stdin if isinstance(stdin, bytes) else json.dumps(stdin).encode(),
            capture_output=True,
            cwd=self.work,
            env={"DETENT_CONFIG_DIR": str(QUICKSTART), **env},
            timeout=CHILD_S_MAX,
        )

    def ok(self, tool, arguments, **env):
        child = self.child(tool, arguments, **env)
        self.assertEqual((child.returncode, child.stderr), (0, b""))
        return json.loads(child.stdout)

    def fails(self, tool, arguments, code, *said, **env):
        """It exits with `code`, prints no output, and says all of `said` in one line."""
        child = self.child(tool, arguments, **env)
        message = child.stderr.decode()
        self.assertEqual(child.returncode, code, message)
        self.assertEqual(child.stdout, b"")
        self.assertEqual(message.count("\n"), 1, message)
        for words in said:
            self.assertIn(words, message)

    def files(self):
        return sorted(
            str(file.relative_to(self.work)) for file in self.work.rglob("*") if file.is_file()
        )


def sql(database, query, *values):
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return connection.execute(query, values).fetchall()


def sold_cents(product, dates):
    query = "SELECT sum(total_cents) FROM sales WHERE product = ? AND sold_on BETWEEN ? AND ?"
    return sql(SALES_DB, query, product, dates["from"], dates["to"])[0][0]


def sales_of(*totals_cents):
    """What query_sales would answer for the first months of 2026."""
    by_month = [
        {"month": month, "units": 1, "total_cents": cents}
        for month, cents in zip(MONTHS, totals_cents)
    ]
    total_cents = sum(totals_cents)
    return {
        "rows": len(by_month),
        "total_cents": total_cents,
        "currency": "EUR",
        "by_month": by_month,
        "by_region": [{"region": "east", "units": len(by_month), "total_cents": total_cents}],
    }


VALID = {
    "query_sales": {"database": "data/sales.db", **ASKED},
    "fetch_targets": {"url": "http://127.0.0.1:1/targets", **ASKED},
    "cached_targets": ASKED,
    "draw_chart": {
        "title": "Sales",
        "months": [{"month": "2026-01", "total_cents": 5}],
        "targets": TARGETS,
        "path": "chart.svg",
    },
    "write_report": {
        **ASKED,
        "path": "report.md",
        "sales": sales_of(5),
        "targets": {"targets": TARGETS, "stale": False, "as_of": "2026-03-02"},
        "chart_path": "chart.svg",
    },
    "post_ledger": {**ASKED, "ledger": "ledger.db", "total_cents": 5, "reference": "r-1"},
    "check_svg": {"path": "chart.svg"},
    "check_report": {**ASKED, "path": "report.md", "database": "data/sales.db"},
}
