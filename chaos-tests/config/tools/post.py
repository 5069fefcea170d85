"""post (once): one more row in the ledger.

No key and no unique constraint, on purpose: a second call makes a second row. Half of `hold_ms`
passes before the row is there and half after, so that a kill can fall on either side.
"""

import contextlib
import json
import os
import sqlite3
import sys
import time


def log(home, word):
    line = " ".join(
        [word, os.environ["DETENT_GOAL"], os.environ["DETENT_STEP"], os.environ["DETENT_ATTEMPT"]]
    )
    handle = os.open(os.path.join(home, "starts.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def insert(home, reference, amount):
    database = os.path.join(home, "ledger.db")
    connection = sqlite3.connect(database, timeout=20, isolation_level=None)
    with contextlib.closing(connection):
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS ledger"
            " (entry_id INTEGER PRIMARY KEY, reference TEXT NOT NULL, amount INTEGER NOT NULL)"
        )
        row = connection.execute(
            "INSERT INTO ledger (reference, amount) VALUES (?, ?)", (reference, amount)
        )
        entry_id = row.lastrowid
        connection.execute("COMMIT")
    return entry_id


def main():
    args = json.load(sys.stdin)
    home, hold_s = args["home"], args["hold_ms"] / 1000
    os.makedirs(home, exist_ok=True)
    log(home, "start")
    time.sleep(hold_s / 2)
    entry_id = insert(home, args["reference"], args["amount"])
    time.sleep(hold_s / 2)
    log(home, "end")
    print(json.dumps({"entry_id": entry_id, "reference": args["reference"], "amount": args["amount"]}))


main()
