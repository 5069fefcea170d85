"""What every tool refuses."""

from support import QUICKSTART, VALID, ToolCase


class ArgumentsTest(ToolCase):
    """Every tool refuses junk with exit 2, one line that names the argument, and no effect."""

    def test_every_tool_is_covered(self):
        tools = {file.stem for file in (QUICKSTART / "tools").glob("*.py")} - {"toolkit"}
        self.assertEqual(tools, set(VALID))

    def test_stdin_must_be_one_json_object(self):
        junk = [
            b"",
            b"{",
            b"[]",
            b"null",
            b'"text"',
            b"\xff\xfe",
            b"{} {}",
            b"[" * 100_000,
            b" " * 1_048_577,
        ]
        for tool in VALID:
            for stdin in junk:
                with self.subTest(tool=tool, stdin=stdin[:10]):
                    self.fails(tool, stdin, 2, "stdin")
        self.assertEqual(self.files(), [])

    def test_each_missing_argument_is_named(self):
        for tool, arguments in VALID.items():
            for name in arguments:
                with self.subTest(tool=tool, missing=name):
                    rest = {key: value for key, value in arguments.items() if key != name}
                    self.fails(tool, rest, 2, f"{name}: missing")

    def test_each_argument_of_a_wrong_type_is_named(self):
        for tool, arguments in VALID.items():
            for name in arguments:
                for wrong in (None, True, 1.5, "", [1], {"x": 1}):
                    with self.subTest(tool=tool, name=name, wrong=wrong):
                        self.fails(tool, {**arguments, name: wrong}, 2, name)
        self.assertEqual(self.files(), [])

    def test_an_unknown_argument_is_refused(self):
        for tool, arguments in VALID.items():
            with self.subTest(tool=tool):
                self.fails(tool, {**arguments, "pth": 1}, 2, "pth", "not an argument")

    def test_date_ranges(self):
        wrong = [
            {"from": "2026-01-01"},
            {"from": "2026-01-01", "to": "2026-02-30"},
            {"from": "20260101", "to": "2026-03-31"},
            {"from": "2026-03-31", "to": "2026-01-01"},
            {"from": "0001-01-01", "to": "9999-12-31"},
            {"from": "2026-01-01", "to": "2026-03-31", "until": "2026-04-01"},
        ]
        for dates in wrong:
            with self.subTest(dates=dates):
                self.fails(
                    "query_sales", {**VALID["query_sales"], "date_range": dates}, 2, "date_range"
                )

    def test_text_can_not_forge_a_line(self):
        for product in ("widget\nTotal: 1 cents (EUR 0.01)", "a\u2028b", "\ud800", "x" * 121):
            with self.subTest(product=product[:12]):
                self.fails(
                    "write_report", {**VALID["write_report"], "product": product}, 2, "product"
                )
