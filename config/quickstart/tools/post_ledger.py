"""post_ledger (once): one new entry in the ledger.

There is no idempotency key and no unique constraint, on purpose: run it twice and there are two
entries. That it runs once is the runtime's work, not this tool's.
"""

import contextlib
import datetime
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python3 -I leaves it out
import toolkit

import sqlite3

TABLE = """
    CREATE TABLE IF NOT EXISTS ledger (
        entry_id INTEGER PRIMARY KEY,
        reference TEXT NOT NULL,
        product TEXT NOT NULL,
        date_from TEXT NOT NULL,
        date_to TEXT NOT NULL,
        total_cents INTEGER NOT NULL,
        posted_at TEXT NOT NULL
    )
"""
ENTRY = """
    INSERT INTO ledger (reference, product, date_from, date_to, total_cents, posted_at)
    VALUES (?, ?, ?, ?, ?, ?)
"""


def post_ledger(ledger, product, date_range, total_cents, reference):
    posted_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
    entry = (reference, product, date_range["from"], date_range["to"], total_cents, posted_at)
    file = toolkit.data_path(ledger)
    file.parent.mkdir(parents=True, exist_ok=True)
    # isolation_level None: the transaction is the one written here, not one that Python guesses.
    connection = sqlite3.connect(file, timeout=toolkit.SQLITE_WAIT_S, isolation_level=None)
    with contextlib.closing(connection):
        # What is answered here must outlive a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(TABLE)
        entry_id = connection.execute(ENTRY, entry).lastrowid
        connection.execute("COMMIT")
    return {
        "entry_id": entry_id,
        "reference": reference,
        "total_cents": total_cents,
        "posted_at": posted_at,
    }


if __name__ == "__main__":
    toolkit.run(
        post_ledger,
        {
            "ledger": toolkit.path,
            "product": toolkit.text,
            "date_range": toolkit.date_range,
            "total_cents": toolkit.cents,
            "reference": toolkit.text,
        },
    )
