"""fetch_targets (read): the sales targets, from the BI service. Its fallback is cached_targets.

GET <url>?product=…&from=…&to=… answers {"as_of": …, "targets": [{"month", "target_cents"}]}.
"""

import http.client
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python3 -I leaves it out
import toolkit

import urllib.parse

ANSWER_BYTES_MAX = 1024 * 1024
SILENCE_S_MAX = 5


def fetch_targets(url, product, date_range, snapshot=None):
    """`snapshot` is only for the fallback, which is given the same arguments."""
    query = urllib.parse.urlencode({"product": product, **date_range})
    return {**understand(get(url, query), date_range), "stale": False}


def get(url, query):
    parts = urllib.parse.urlsplit(url)
    secure = parts.scheme == "https"
    connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    try:
        connection = connect(parts.hostname, parts.port, timeout=SILENCE_S_MAX)
        connection.request(
            "GET", f"{parts.path or '/'}?{query}", headers={"Accept": "application/json"}
        )
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        raise toolkit.ToolError(
            f"the BI service at {parts.netloc} does not answer:"
            f" {str(error) or type(error).__name__}"
        ) from None
    if answer.status != 200:
        raise toolkit.ToolError(f"the BI service at {parts.netloc} answered HTTP {answer.status}")
    if len(body) > ANSWER_BYTES_MAX:
        raise toolkit.ToolError(f"the BI service answered more than {ANSWER_BYTES_MAX} bytes")
    return body


def understand(body, date_range):
    """The answer is somebody else's: it is checked like an argument."""
    try:
        answer = toolkit.check_fields(
            "answer",
            json.loads(body),
            {"as_of": toolkit.text, "targets": toolkit.list_of(toolkit.TARGET)},
            {},
        )
        by_month = toolkit.unique_months("answer.targets", answer["targets"])
        for month in toolkit.months_of(date_range):
            if month not in by_month:
                raise toolkit.ArgumentError(f"answer.targets: nothing for {month}")
    except (ValueError, RecursionError):
        raise toolkit.ToolError("the BI service did not answer with JSON") from None
    except toolkit.ArgumentError as error:
        raise toolkit.ToolError(
            f"the BI service answered what was not asked for: {error}"
        ) from None
    return {
        "targets": [by_month[month] for month in toolkit.months_of(date_range)],
        "as_of": answer["as_of"],
    }


def http_url(name, value):
    """A plain address: no query (that is ours), no password (the URL is shown in errors)."""
    try:
        parts = urllib.parse.urlsplit(toolkit.path(name, value))
        # Reading the port is what checks it.
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        usable = usable and not (parts.query or parts.fragment or "@" in parts.netloc)
    except ValueError:
        usable = False
    if not usable or " " in value or not value.isascii():
        raise toolkit.ArgumentError(
            f"{name}: must be an http(s) address without query or password, like http://127.0.0.1:8080/targets"
        )
    return value


if __name__ == "__main__":
    toolkit.run(
        fetch_targets,
        {"url": http_url, "product": toolkit.text, "date_range": toolkit.date_range},
        {"snapshot": toolkit.path},
    )
