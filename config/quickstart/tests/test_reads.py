"""The tools that change nothing, and the BI service down, up and broken."""

import hashlib
import http.server
import json
import socket
import threading
import urllib.parse

from support import ASKED, MONTHS, QUARTER, SALES_DB, SNAPSHOT, TARGETS, VALID, ToolCase, sold_cents


class QuerySalesTest(ToolCase):
    def test_sums_by_month_and_region_agree_with_the_database(self):
        output = self.ok("query_sales", VALID["query_sales"])
        self.assertEqual(output["total_cents"], sold_cents("widget", QUARTER))
        self.assertEqual(output["currency"], "EUR")
        self.assertEqual([entry["month"] for entry in output["by_month"]], MONTHS)
        self.assertEqual(
            {e["region"] for e in output["by_region"]}, {"east", "north", "south", "west"}
        )
        for part in ("by_month", "by_region"):
            self.assertEqual(
                sum(entry["total_cents"] for entry in output[part]), output["total_cents"]
            )
        february = {"from": "2026-02-01", "to": "2026-02-28"}
        self.assertEqual(output["by_month"][1]["total_cents"], sold_cents("widget", february))

    def test_both_ends_of_the_range_are_included(self):
        day = {"from": "2026-02-10", "to": "2026-02-10"}
        output = self.ok("query_sales", {**VALID["query_sales"], "date_range": day})
        self.assertEqual(output["total_cents"], sold_cents("widget", day))
        self.assertGreater(output["rows"], 0)

    def test_a_range_without_sales_is_zero(self):
        dates = {"from": "2020-01-01", "to": "2020-02-01"}
        output = self.ok("query_sales", {**VALID["query_sales"], "date_range": dates})
        self.assertEqual((output["rows"], output["total_cents"], output["by_region"]), (0, 0, []))
        self.assertEqual([entry["total_cents"] for entry in output["by_month"]], [0, 0])

    def test_an_unknown_product_fails(self):
        for product in ("wodget", "widget' OR '1'='1"):
            self.fails("query_sales", {**VALID["query_sales"], "product": product}, 1, "no product")

    def test_a_database_that_is_absent_fails_and_is_not_created(self):
        arguments = {**VALID["query_sales"], "database": "none.db"}
        self.fails("query_sales", arguments, 1, "no such file", DETENT_CONFIG_DIR=str(self.work))
        self.assertEqual(self.files(), [])

    def test_a_file_that_is_no_database_fails(self):
        (self.work / "sales.db").write_text(
            "not a database, but long enough to be read as one" * 20
        )
        self.fails(
            "query_sales",
            {**VALID["query_sales"], "database": str(self.work / "sales.db")},
            1,
            "database",
        )

    def test_a_relative_database_is_found_without_the_runtime_too(self):
        self.ok("query_sales", VALID["query_sales"], DETENT_CONFIG_DIR="")

    def test_the_database_is_left_as_it_was(self):
        before = hashlib.sha256(SALES_DB.read_bytes()).hexdigest()
        self.ok("query_sales", VALID["query_sales"])
        self.assertEqual(hashlib.sha256(SALES_DB.read_bytes()).hexdigest(), before)
        self.assertEqual(sorted(f.name for f in SALES_DB.parent.glob("sales.db*")), ["sales.db"])


class BiService(http.server.BaseHTTPRequestHandler):
    """Answers each path with what the test put there, and remembers what was asked."""

    def do_GET(self):
        self.server.asked.append(self.path)
        status, body = self.server.answers[urllib.parse.urlsplit(self.path).path]
        self.send_response(status)
        self.send_header("Location", "/good")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class FetchTargetsTest(ToolCase):
    def serve(self, answers):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), BiService)
        server.asked, server.answers = [], answers
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server, f"http://127.0.0.1:{server.server_port}"

    def good(self):
        return json.dumps({"as_of": "2026-04-01T00:00:00Z", "targets": TARGETS}).encode()

    def test_a_service_that_is_down_fails_and_says_so(self):
        # Bound but not listening: nobody else can take the port while it refuses.
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}/targets"
            self.fails("fetch_targets", {**ASKED, "url": url}, 1, "does not answer", "refused")

    def test_a_service_that_is_up_gives_fresh_targets(self):
        server, url = self.serve({"/good": (200, self.good())})
        # A proxy in the environment must not be asked for a loopback service.
        output = self.ok(
            "fetch_targets", {**ASKED, "url": f"{url}/good"}, http_proxy="http://127.0.0.1:1"
        )
        self.assertEqual(
            output, {"targets": TARGETS, "as_of": "2026-04-01T00:00:00Z", "stale": False}
        )
        query = urllib.parse.urlsplit(server.asked[0]).query
        self.assertEqual(dict(urllib.parse.parse_qsl(query)), {"product": "widget", **QUARTER})

    def test_only_the_months_asked_for_are_given(self):
        _, url = self.serve({"/good": (200, self.good())})
        dates = {"from": "2026-02-01", "to": "2026-02-28"}
        output = self.ok(
            "fetch_targets", {"url": f"{url}/good", "product": "widget", "date_range": dates}
        )
        self.assertEqual(output["targets"], [TARGETS[1]])

    def test_an_answer_that_is_wrong_fails(self):
        month = {"month": "2026-01", "target_cents": 1}
        wrong = {
            "/500": (500, b"{}", "HTTP 500"),
            "/moved": (302, b"", "HTTP 302"),
            "/html": (200, b"<html>", "did not answer with JSON"),
            "/bytes": (200, b"\xff", "did not answer with JSON"),
            "/list": (200, b"[]", "must be a JSON object"),
            "/float": (
                200,
                b'{"as_of":"x","targets":[{"month":"2026-01","target_cents":1.5}]}',
                "target_cents",
            ),
            "/few": (
                200,
                json.dumps({"as_of": "x", "targets": [month]}).encode(),
                "nothing for 2026-02",
            ),
            "/twice": (
                200,
                json.dumps({"as_of": "x", "targets": [month, month]}).encode(),
                "twice",
            ),
            "/huge": (200, b" " * 1_048_577, "more than"),
        }
        _, url = self.serve({path: answer[:2] for path, answer in wrong.items()})
        for path, (_, _, said) in wrong.items():
            with self.subTest(path=path):
                self.fails("fetch_targets", {**ASKED, "url": url + path}, 1, said)

    def test_urls_that_are_refused(self):
        host = "127.0.0.1:1"
        for url in (
            "file:///etc/passwd",
            "targets",
            "http://",
            f"http://{host}/?a=1",
            "http://h:99999/",
            f"http://u:p@{host}/",
            f"http://{host}/a b",
            f"http://{host}/\r\nX: y",
            "http://[::1",
        ):
            with self.subTest(url=url):
                self.fails("fetch_targets", {**ASKED, "url": url}, 2, "url")


class CachedTargetsTest(ToolCase):
    def test_it_takes_the_arguments_of_the_tool_it_stands_in_for(self):
        output = self.ok(
            "cached_targets", {**VALID["fetch_targets"], "snapshot": "data/targets-snapshot.json"}
        )
        self.assertEqual(output, self.ok("cached_targets", ASKED))
        self.fails("fetch_targets", {**VALID["fetch_targets"], "snapshot": "x"}, 1, "refused")

    def test_the_answer_is_the_snapshot_and_says_that_it_is_stale(self):
        stored = json.loads(SNAPSHOT.read_text())
        output = self.ok("cached_targets", ASKED)
        self.assertIs(output["stale"], True)
        self.assertEqual(output["as_of"], stored["as_of"])
        wanted = [entry for entry in stored["targets"]["widget"] if entry["month"] in MONTHS]
        self.assertEqual(output["targets"], wanted)
        self.assertEqual(len(wanted), 3)

    def test_what_is_not_in_the_snapshot_fails(self):
        self.fails("cached_targets", {**ASKED, "product": "wodget"}, 1, "no targets for product")
        dates = {"from": "2020-01-01", "to": "2020-02-01"}
        self.fails("cached_targets", {**ASKED, "date_range": dates}, 1, "no targets from 2020-01")
        self.fails("cached_targets", {**ASKED, "snapshot": "none.json"}, 1, "no such file")

    def test_a_damaged_snapshot_fails(self):
        for content in (
            b"{",
            b"[]",
            b'{"as_of": "x", "currency": "EUR", "targets": {"widget": [1]}}',
        ):
            with self.subTest(content=content):
                (self.work / "s.json").write_bytes(content)
                self.fails(
                    "cached_targets", {**ASKED, "snapshot": str(self.work / "s.json")}, 1, "damaged"
                )
