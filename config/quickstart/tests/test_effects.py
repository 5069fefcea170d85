"""The tools with an effect, and the probes that look at it."""

import hashlib
import os
import threading
import xml.etree.ElementTree

from support import ASKED, MONTHS, QUARTER, TARGETS, VALID, ToolCase, sales_of, sold_cents, sql

SVG = "{http://www.w3.org/2000/svg}"


class DrawChartTest(ToolCase):
    TITLE = 'Sales of <widget> & "friends" \'26'

    def draw(self, **changes):
        months = [
            {"month": m, "units": 3, "total_cents": c} for m, c in zip(MONTHS, (250_00, 0, 999_99))
        ]
        arguments = {
            "title": self.TITLE,
            "months": months,
            "targets": TARGETS,
            "path": "out/chart.svg",
        }
        return self.ok("draw_chart", {**arguments, **changes})

    def test_the_file_is_what_the_output_says(self):
        output = self.draw()
        content = (self.work / "out/chart.svg").read_bytes()
        self.assertEqual(output["path"], "out/chart.svg")
        self.assertEqual((output["bytes"], output["bars"]), (len(content), 3))
        self.assertEqual(output["sha256"], hashlib.sha256(content).hexdigest())
        self.assertEqual(self.files(), ["out/chart.svg"], "no temporary file stays behind")

    def test_the_svg_is_well_formed_and_labelled(self):
        self.draw()
        root = xml.etree.ElementTree.parse(self.work / "out/chart.svg").getroot()
        texts = [element.text for element in root.iter(f"{SVG}text")]
        self.assertIn(self.TITLE, texts)
        for label in (*MONTHS, "250", "1,000"):
            self.assertIn(label, texts)
        self.assertEqual(len(self.marks(root, "rect", "bar")), 3)
        self.assertEqual(len(self.marks(root, "line", "target")), 3)

    def marks(self, root, tag, kind):
        return [element for element in root.iter(SVG + tag) if element.get("class") == kind]

    def test_every_mark_lies_inside_the_picture(self):
        for cents in ([0], [1], [7_99, 8_00], [2**53 - 1, 1], list(range(120))):
            with self.subTest(cents=cents[:2]):
                months = [
                    {"month": f"{2000 + i // 12}-{i % 12 + 1:02}", "total_cents": c}
                    for i, c in enumerate(cents)
                ]
                self.draw(months=months, targets=[{"month": "2000-01", "target_cents": 12_345}])
                root = xml.etree.ElementTree.parse(self.work / "out/chart.svg").getroot()
                bars = self.marks(root, "rect", "bar")
                self.assertEqual(len(bars), len(cents))
                for bar in bars:
                    x, y, width, height = (int(bar.get(k)) for k in ("x", "y", "width", "height"))
                    self.assertTrue(0 <= x and x + width <= int(root.get("width")))
                    self.assertTrue(80 <= y and y + height <= int(root.get("height")))

    def test_a_target_without_its_month_is_left_out(self):
        self.draw(months=[{"month": "2026-02", "total_cents": 1}])
        root = xml.etree.ElementTree.parse(self.work / "out/chart.svg").getroot()
        self.assertEqual(len(self.marks(root, "line", "target")), 1)

    def test_again_gives_the_same_bytes(self):
        first = self.draw()
        (self.work / "out/chart.svg").write_text("something else")
        self.assertEqual(self.draw(), first)
        content = (self.work / "out/chart.svg").read_bytes()
        self.assertEqual(hashlib.sha256(content).hexdigest(), first["sha256"])

    def test_months_that_are_refused(self):
        one = {"month": "2026-01", "total_cents": 1}
        wrong = [[], [one, one], [{**one, "month": "2026-13"}], [{**one, "total_cents": -1}]]
        wrong += [[{**one, "total_cents": True}], [{**one, "total_cents": 2**53}], [one] * 121]
        for months in wrong:
            with self.subTest(months=months[:2]):
                self.fails("draw_chart", {**VALID["draw_chart"], "months": months}, 2, "months")
        self.assertEqual(self.files(), [])

    def test_a_place_that_can_not_be_written_fails_and_leaves_nothing(self):
        (self.work / "chart.svg").mkdir()
        self.fails("draw_chart", VALID["draw_chart"], 1, "chart.svg")
        (self.work / "file").write_text("")
        self.fails("draw_chart", {**VALID["draw_chart"], "path": "file/chart.svg"}, 1, "file")
        self.assertEqual(self.files(), ["file"])


class ReportTest(ToolCase):
    """write_report, and check_report which looks at what it did."""

    CHECK = {**ASKED, "path": "out/report.md", "database": "data/sales.db"}

    def write(self, **changes):
        sales = self.ok("query_sales", VALID["query_sales"])
        targets = self.ok("cached_targets", ASKED)
        arguments = {
            "path": "out/report.md",
            "sales": sales,
            "targets": targets,
            "chart_path": "out/chart.svg",
        }
        output = self.ok("write_report", {**ASKED, **arguments, **changes})
        return output, (self.work / "out/report.md").read_text()

    def test_the_report_says_what_the_database_says(self):
        output, report = self.write()
        total_cents = sold_cents("widget", QUARTER)
        self.assertEqual(output["total_cents"], total_cents)
        euros = f"{total_cents // 100:,}.{total_cents % 100:02}"
        self.assertIn(f"\nTotal: {total_cents} cents (EUR {euros})\n", report)
        checked = self.ok("check_report", self.CHECK)
        wanted = {"report_total_cents": total_cents, "database_total_cents": total_cents}
        self.assertEqual(checked, {**wanted, "equal": True, "stale_noted": True})

    def test_the_file_is_what_the_output_says_and_again_gives_the_same(self):
        output, report = self.write()
        self.assertEqual(output["bytes"], len(report.encode()))
        self.assertEqual(output["sha256"], hashlib.sha256(report.encode()).hexdigest())
        self.assertEqual(self.write(), (output, report))
        self.assertEqual(self.files(), ["out/report.md"])

    def test_a_row_per_month_and_a_link_to_the_chart(self):
        _, report = self.write(sales=sales_of(123_456, 800_000, 5), targets=self.fresh())
        self.assertIn("| 2026-01 | 1 | 1,234.56 | 8,000.00 | -6,765.44 |", report)
        self.assertIn("| 2026-02 | 1 | 8,000.00 | 8,000.00 | 0.00 |", report)
        self.assertIn("| 2026-03 | 1 | 0.05 | n/a | n/a |", report)
        self.assertIn("](chart.svg)", report)
        _, report = self.write(chart_path="charts/q 1.svg")
        self.assertIn("](../charts/q%201.svg)", report)

    def fresh(self):
        return {"targets": TARGETS[:2], "stale": False, "as_of": "2026-04-01"}

    def test_the_stale_note_stands_only_over_stale_targets(self):
        _, report = self.write()
        self.assertIn("> **Targets are stale.** They come from a snapshot of 2026-03-02", report)
        _, report = self.write(targets=self.fresh())
        self.assertNotIn("stale", report)
        self.assertIs(self.ok("check_report", self.CHECK)["stale_noted"], False)

    def test_a_product_can_not_break_the_markdown(self):
        _, report = self.write(product="a|b *c* <i>")
        self.assertIn("# Sales of a\\|b \\*c\\* \\<i\\>,", report)

    def test_sums_that_do_not_add_up_are_refused(self):
        for part in ("by_month", "by_region"):
            sales = sales_of(5, 6)
            sales[part][0]["total_cents"] += 1
            self.fails(
                "write_report",
                {**VALID["write_report"], "sales": sales},
                2,
                f"sales.{part}",
                "adds up",
            )
        self.assertEqual(self.files(), [])

    def test_a_wrong_total_is_seen(self):
        self.write(sales=sales_of(1, 2, 3))
        checked = self.ok("check_report", self.CHECK)
        self.assertIs(checked["equal"], False)
        self.assertEqual(checked["report_total_cents"], 6)
        self.assertEqual(checked["database_total_cents"], sold_cents("widget", QUARTER))

    def test_a_report_of_another_quarter_or_product_is_seen(self):
        self.write()
        dates = {"from": "2025-10-01", "to": "2025-12-31"}
        self.assertIs(self.ok("check_report", {**self.CHECK, "date_range": dates})["equal"], False)
        self.assertIs(self.ok("check_report", {**self.CHECK, "product": "gizmo"})["equal"], False)

    def test_a_report_without_exactly_one_sound_total_has_none(self):
        total_cents = sold_cents("widget", QUARTER)
        line = f"Total: {total_cents} cents (EUR {total_cents // 100:,}.{total_cents % 100:02})\n"
        (self.work / "out").mkdir()
        for report in (
            b"",
            b"\xff\xfe",
            (line * 2).encode(),
            f"Total: {total_cents} cents (EUR 1.00)\n".encode(),
        ):
            with self.subTest(report=report[:20]):
                (self.work / "out/report.md").write_bytes(report)
                checked = self.ok("check_report", self.CHECK)
                self.assertIsNone(checked["report_total_cents"])
                self.assertIs(checked["equal"], False)
        (self.work / "out/report.md").write_text(line)
        self.assertIs(self.ok("check_report", self.CHECK)["equal"], True)

    def test_a_missing_report_is_an_observation(self):
        self.assertEqual(self.ok("check_report", self.CHECK), {"equal": False, "missing": True})

    def test_a_database_that_can_not_be_read_is_a_failure(self):
        self.write()
        self.fails("check_report", {**self.CHECK, "database": "none.db"}, 1, "no such file")


class PostLedgerTest(ToolCase):
    POST = VALID["post_ledger"]

    def test_twice_makes_two_entries(self):
        first = self.ok("post_ledger", self.POST)
        second = self.ok("post_ledger", self.POST)
        self.assertEqual((first["entry_id"], second["entry_id"]), (1, 2))
        self.assertEqual((first["reference"], first["total_cents"]), ("r-1", 5))
        rows = sql(
            self.work / "ledger.db",
            "SELECT entry_id, reference, product, date_from, date_to, total_cents, posted_at"
            " FROM ledger ORDER BY 1",
        )
        same = ("r-1", "widget", "2026-01-01", "2026-03-31", 5)
        self.assertEqual(rows, [(1, *same, first["posted_at"]), (2, *same, second["posted_at"])])

    def test_the_ledger_lies_in_the_data_folder_of_the_runtime(self):
        data = self.work / "data"
        self.ok(
            "post_ledger", {**self.POST, "ledger": "books/ledger.db"}, DETENT_DATA_DIR=str(data)
        )
        self.assertEqual(self.files(), ["data/books/ledger.db"])

    def test_posts_at_the_same_time_are_all_kept(self):
        threads = [
            threading.Thread(target=self.child, args=("post_ledger", self.POST)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sql(self.work / "ledger.db", "SELECT count(*) FROM ledger"), [(8,)])

    def test_a_file_that_is_no_ledger_is_not_touched(self):
        junk = "these are not the books you are looking for " * 40
        (self.work / "ledger.db").write_text(junk)
        self.fails("post_ledger", self.POST, 1, "not a database")
        self.assertEqual((self.work / "ledger.db").read_text(), junk)

    def test_a_table_of_another_shape_fails_and_stays_empty(self):
        sql(self.work / "ledger.db", "CREATE TABLE ledger (entry_id INTEGER PRIMARY KEY)")
        self.fails("post_ledger", self.POST, 1, "no column")
        self.assertEqual(sql(self.work / "ledger.db", "SELECT count(*) FROM ledger"), [(0,)])


class CheckSvgTest(ToolCase):
    def check(self, content):
        (self.work / "chart.svg").write_bytes(content)
        return self.ok("check_svg", {"path": "chart.svg"})

    def test_a_drawn_chart(self):
        months = [{"month": month, "total_cents": 1} for month in MONTHS]
        self.ok("draw_chart", {**VALID["draw_chart"], "months": months})
        output = self.ok("check_svg", {"path": "chart.svg"})
        self.assertEqual(output, {"well_formed": True, "bars": 3, "width": 480, "height": 384})

    def test_a_missing_chart_is_an_observation(self):
        self.assertEqual(
            self.ok("check_svg", {"path": "none.svg"}), {"well_formed": False, "missing": True}
        )

    def test_what_is_not_a_chart(self):
        entities = (
            b'<!DOCTYPE svg [<!ENTITY a "aaaa">]><svg xmlns="http://www.w3.org/2000/svg">&a;</svg>'
        )
        for content in (
            b"",
            b"<svg",
            b"<svg/>",
            b"<html></html>",
            b"\x00",
            b'<?xml version="1.0" encoding="nonsense"?><svg/>',
            entities,
            entities.decode().encode("utf-16"),
            b" " * (4 * 1024 * 1024 + 1),
        ):
            with self.subTest(content=content[:20]):
                output = self.check(content)
                self.assertEqual((output["well_formed"], output["missing"]), (False, False))

    def test_half_a_chart_is_broken(self):
        self.ok("draw_chart", VALID["draw_chart"])
        whole = (self.work / "chart.svg").read_bytes()
        self.assertIs(self.check(whole[: len(whole) // 2])["well_formed"], False)

    def test_only_bars_count(self):
        svg = (
            b'<svg xmlns="http://www.w3.org/2000/svg" width="wide"><rect/><rect class="bar"/></svg>'
        )
        self.assertEqual(
            self.check(svg), {"well_formed": True, "bars": 1, "width": None, "height": None}
        )

    def test_a_folder_or_a_pipe_is_not_a_chart(self):
        (self.work / "folder").mkdir()
        os.mkfifo(self.work / "pipe")
        for path in ("folder", "pipe"):
            self.assertEqual(self.ok("check_svg", {"path": path})["reason"], "not a regular file")
