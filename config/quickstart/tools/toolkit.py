"""What every quickstart tool shares: the contract with the runtime, argument checks, files.

The contract: one JSON object on stdin (the arguments), one JSON object on stdout (the output).
Exit 0: done. Exit 1: the work failed. Exit 2: an argument is missing or wrong.
On failure stderr holds one line for people.
"""

import datetime
import json
import os
import pathlib
import re
import sqlite3
import sys
import tempfile

INPUT_BYTES_MAX = 1024 * 1024
MONTHS_MAX = 120
TEXT_CHARS_MAX = 120
PATH_CHARS_MAX = 1024
CENTS_MAX = 2**53 - 1  # the largest integer every JSON reader keeps exact
SQLITE_WAIT_S = 5


class ArgumentError(Exception):
    """An argument is missing or wrong; the message names it."""


class ToolError(Exception):
    """The arguments are fine, the work could not be done."""


def run(tool, required, optional=None):
    """Read and check the arguments, call `tool` with them, print what it returns, exit.

    `required` and `optional` map an argument's name to its check: a function of (name, value)
    that returns the checked value or raises ArgumentError. An optional argument that was not
    given is not passed on, so the tool's own default stands.
    """
    try:
        output = tool(**check_fields("", read_arguments(), required, optional or {}))
        print(json.dumps(output), flush=True)
    except ArgumentError as error:
        fail(2, f"bad argument: {error}")
    except (ToolError, OSError, sqlite3.Error) as error:
        fail(1, str(error))


def fail(code, message):
    print(" ".join(message.split()), file=sys.stderr)
    sys.exit(code)


def read_arguments():
    raw = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    if len(raw) > INPUT_BYTES_MAX:
        raise ArgumentError(f"stdin: more than {INPUT_BYTES_MAX} bytes")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise ArgumentError("stdin: not valid JSON") from None


# Checks. Each takes the argument's name and value, and returns the value or raises.


def check_fields(name, value, required, optional):
    """A JSON object with all of `required`, any of `optional`, and nothing else."""
    if not isinstance(value, dict):
        raise ArgumentError(f"{name or 'stdin'}: must be a JSON object")
    prefix = f"{name}." if name else ""
    checks = {**required, **optional}
    for field in required:
        if field not in value:
            raise ArgumentError(f"{prefix}{field}: missing")
    for field in value:
        if field not in checks:
            raise ArgumentError(f"{prefix}{field[:40]!a}: not an argument of this tool")
    return {field: checks[field](prefix + field, item) for field, item in value.items()}


def fields(required, optional=None):
    """The check for a nested object."""
    return lambda name, value: check_fields(name, value, required, optional or {})


def list_of(check, count_min=0, count_max=MONTHS_MAX):
    """The check for a list whose every item passes `check`."""

    def checked(name, value):
        if not isinstance(value, list) or not count_min <= len(value) <= count_max:
            raise ArgumentError(f"{name}: must be a list of {count_min} to {count_max} items")
        return [check(f"{name}[{index}]", item) for index, item in enumerate(value)]

    return checked


def text(name, value):
    """One line of printable text, so that nothing can forge a line of a report."""
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(f"{name}: must be a non-empty text")
    if len(value) > TEXT_CHARS_MAX or not value.isprintable():
        raise ArgumentError(
            f"{name}: must be one printable line of at most {TEXT_CHARS_MAX} characters"
        )
    return value


def path(name, value):
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= PATH_CHARS_MAX
        or not value.isprintable()
    ):
        raise ArgumentError(
            f"{name}: must be a file path of 1 to {PATH_CHARS_MAX} printable characters"
        )
    return value


def flag(name, value):
    if not isinstance(value, bool):
        raise ArgumentError(f"{name}: must be true or false")
    return value


def count(name, value):
    """A whole number from 0 to CENTS_MAX; true and false are not numbers."""
    if type(value) is not int or not 0 <= value <= CENTS_MAX:
        raise ArgumentError(f"{name}: must be a whole number from 0 to {CENTS_MAX}")
    return value


cents = count


def month(name, value):
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", value):
        raise ArgumentError(f"{name}: must be a month like 2026-01")
    return value


def day(name, value):
    try:
        if datetime.date.fromisoformat(value).isoformat() == value:
            return value
    except (TypeError, ValueError):
        pass
    raise ArgumentError(f"{name}: must be a date like 2026-01-31")


def date_range(name, value):
    """`from` and `to`, both included."""
    value = check_fields(name, value, {"from": day, "to": day}, {})
    if value["from"] > value["to"]:
        raise ArgumentError(f"{name}: 'from' is after 'to'")
    if len(months_of(value)) > MONTHS_MAX:
        raise ArgumentError(f"{name}: spans more than {MONTHS_MAX} months")
    return value


def months_of(dates):
    """Every month that a date range touches, in order, like 2026-01."""
    first, last = (int(end[:4]) * 12 + int(end[5:7]) - 1 for end in (dates["from"], dates["to"]))
    return [f"{n // 12:04}-{n % 12 + 1:02}" for n in range(first, last + 1)]


def unique_months(name, entries):
    """`{month: entry}`; the same month twice is refused."""
    by_month = {entry["month"]: entry for entry in entries}
    if len(by_month) != len(entries):
        raise ArgumentError(f"{name}: the same month appears twice")
    return by_month


TARGET = fields({"month": month, "target_cents": cents})


# Files and databases.


def config_path(relative):
    """A path that belongs to the configuration; an absolute path stays as it is."""
    beside_the_tools = pathlib.Path(__file__).resolve().parent.parent
    return pathlib.Path(os.environ.get("DETENT_CONFIG_DIR") or beside_the_tools, relative)


def data_path(relative):
    """A path that belongs to the runtime's data; an absolute path stays as it is."""
    return pathlib.Path(os.environ.get("DETENT_DATA_DIR") or os.getcwd(), relative)


def open_read_only(database):
    """A connection that can't write and never creates the file."""
    file = config_path(database).absolute()
    if not file.is_file():
        raise ToolError(f"database: no such file: {file}")
    return sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=SQLITE_WAIT_S)


def write_atomically(file, content):
    """Put `content` (bytes) at `file`: a reader sees the old file or the new one, never a part."""
    file = os.path.abspath(file)
    folder = os.path.dirname(file)
    os.makedirs(folder, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".writing-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fchmod(out.fileno(), 0o644)
            os.fsync(out.fileno())
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_folder(folder)


def sync_folder(folder):
    """Without this a power cut could undo the rename."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def euros(amount_cents):
    """123456 -> 1,234.56"""
    sign = "-" if amount_cents < 0 else ""
    return f"{sign}{abs(amount_cents) // 100:,}.{abs(amount_cents) % 100:02}"
