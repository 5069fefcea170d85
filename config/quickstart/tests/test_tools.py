"""The shipped data, and the tools one after the other.

python3 -m unittest discover -s config/quickstart/tests
"""

import json
import shutil
import subprocess
import sys
import unittest

from support import CHILD_S_MAX, QUARTER, QUICKSTART, SALES_DB, SNAPSHOT, ToolCase, sold_cents, sql


class DataTest(ToolCase):
    def make(self, name):
        folder = self.work / name
        folder.mkdir()
        script = QUICKSTART / "data" / "make_data.py"
        subprocess.run(
            [sys.executable, "-I", "-S", "-B", str(script), str(folder)],
            check=True,
            timeout=CHILD_S_MAX,
        )
        return folder

    def test_twice_gives_the_same_bytes(self):
        first, second = self.make("first"), self.make("second")
        for name in ("sales.db", "targets-snapshot.json"):
            self.assertEqual((first / name).read_bytes(), (second / name).read_bytes())

    def test_what_ships_is_what_is_made(self):
        """Rows and schema, not pages: another SQLite may lay the same table out otherwise."""
        made = self.make("made")
        self.assertEqual((made / "targets-snapshot.json").read_bytes(), SNAPSHOT.read_bytes())
        for query in (
            "SELECT type, name, sql FROM sqlite_master ORDER BY name",
            "SELECT * FROM sales ORDER BY id",
        ):
            self.assertEqual(sql(made / "sales.db", query), sql(SALES_DB, query))

    def test_the_shipped_database_is_sound(self):
        self.assertLess(SALES_DB.stat().st_size, 400_000)
        self.assertEqual(sql(SALES_DB, "PRAGMA integrity_check"), [("ok",)])
        query = (
            "SELECT count(*), count(DISTINCT product), count(DISTINCT region),"
            " min(sold_on), max(sold_on) FROM sales"
        )
        ((rows, *rest),) = sql(SALES_DB, query)
        self.assertGreater(rows, 2_000)
        self.assertEqual(rest, [5, 4, "2025-07-01", "2026-06-30"])
        self.assertEqual(
            sql(SALES_DB, "SELECT count(*) FROM sales WHERE total_cents != units * unit_cents"),
            [(0,)],
        )


@unittest.skipUnless(shutil.which("git"), "needs git")
class RepositoryTest(unittest.TestCase):
    def test_the_data_is_not_ignored(self):
        inside = subprocess.run(["git", "rev-parse"], cwd=QUICKSTART, capture_output=True)
        if inside.returncode != 0:
            self.skipTest("not in a git checkout")
        command = ["git", "check-ignore", "--no-index", str(SALES_DB), str(SNAPSHOT)]
        ignored = subprocess.run(command, cwd=QUICKSTART, capture_output=True, text=True)
        self.assertEqual((ignored.returncode, ignored.stdout), (1, ""))


class QuickstartTest(ToolCase):
    """The tools one after the other, as the sales-report agent plans them."""

    def test_the_goal_of_the_quickstart(self):
        goal = json.loads((QUICKSTART / "goal.json").read_text())
        self.assertEqual(goal["agent"], "sales-report")
        asked = goal["input"]
        sales = self.ok("query_sales", {"database": "data/sales.db", **asked})
        targets = self.ok("cached_targets", {"url": "http://127.0.0.1:1/targets", **asked})
        chart = {
            "title": "Sales",
            "months": sales["by_month"],
            "targets": targets["targets"],
            "path": "chart.svg",
        }
        drawn = self.ok("draw_chart", chart)
        report = {
            "path": "report.md",
            "sales": sales,
            "targets": targets,
            "chart_path": drawn["path"],
        }
        written = self.ok("write_report", {**asked, **report})
        posted = self.ok(
            "post_ledger",
            {
                **asked,
                "ledger": "ledger.db",
                "total_cents": written["total_cents"],
                "reference": "goal-1",
            },
        )
        self.assertEqual(self.ok("check_svg", {"path": "chart.svg"})["bars"], 3)
        self.assertIs(
            self.ok("check_report", {**asked, "path": "report.md", "database": "data/sales.db"})[
                "equal"
            ],
            True,
        )
        self.assertEqual(posted["total_cents"], sold_cents("widget", QUARTER))
