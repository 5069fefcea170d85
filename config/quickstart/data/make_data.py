"""Makes the quickstart's data: sales.db and targets-snapshot.json, in this folder or the one named.

    python3 data/make_data.py [FOLDER]

Seeded: the same bytes every time.
"""

import json
import pathlib
import random
import sqlite3
import sys
from datetime import date, timedelta

SEED = 20260701
FIRST_DAY = date(2025, 7, 1)
LAST_DAY = date(2026, 6, 30)
SNAPSHOT_AS_OF = "2026-03-02T06:00:00Z"
PRICES_CENTS = {"widget": 1295, "gadget": 4990, "sprocket": 349, "flange": 875, "gizmo": 12900}
REGIONS = ("east", "north", "south", "west")
SALES_A_DAY = 11
# July to June: how busy a month is, in percent of the usual.
SEASON_PERCENT = (85, 80, 105, 110, 125, 140, 75, 90, 110, 105, 100, 95)

SCHEMA = """
    CREATE TABLE sales (
        id INTEGER PRIMARY KEY,
        sold_on TEXT NOT NULL,
        product TEXT NOT NULL,
        region TEXT NOT NULL,
        units INTEGER NOT NULL,
        unit_cents INTEGER NOT NULL,
        total_cents INTEGER NOT NULL
    );
    CREATE INDEX sales_by_product_and_day ON sales (product, sold_on);
"""


def make_sales():
    """Rows of (sold_on, product, region, units, unit_cents, total_cents), oldest first."""
    # Only random() itself is promised to give the same numbers in every version of Python.
    chance = random.Random(SEED).random
    day = FIRST_DAY
    while day <= LAST_DAY:
        percent = SEASON_PERCENT[(day.month - 7) % 12]
        for _ in range(SALES_A_DAY):
            product = pick(chance, tuple(PRICES_CENTS))
            units = 1 + int(chance() * 24) * percent // 100
            unit_cents = PRICES_CENTS[product] * (90 + int(chance() * 21)) // 100
            region = pick(chance, REGIONS)
            yield day.isoformat(), product, region, units, unit_cents, units * unit_cents
        day += timedelta(days=1)


def pick(chance, choices):
    return choices[int(chance() * len(choices))]


def write_database(file, rows):
    file.unlink(missing_ok=True)
    database = sqlite3.connect(file)
    # Set, not left to how this SQLite was built.
    database.execute("PRAGMA page_size = 4096")
    database.execute("PRAGMA auto_vacuum = NONE")
    database.execute("PRAGMA encoding = 'UTF-8'")
    database.executescript(SCHEMA)
    database.executemany(
        "INSERT INTO sales (sold_on, product, region, units, unit_cents, total_cents)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        rows,
    )
    database.commit()
    database.execute("VACUUM")
    database.close()
    forget_sqlite_version(file)


def forget_sqlite_version(file):
    """Bytes 96 to 99 name the SQLite that wrote last; no reader needs them."""
    with file.open("r+b") as database:
        database.seek(96)
        database.write(bytes(4))


def make_targets(rows):
    """Targets near what was sold, a little above or below, in whole hundreds of euros."""
    chance = random.Random(SEED + 1).random
    sold_cents = {}
    for sold_on, product, *_, total_cents in rows:
        key = product, sold_on[:7]
        sold_cents[key] = sold_cents.get(key, 0) + total_cents
    targets = {}
    for (product, month), cents in sorted(sold_cents.items()):
        target_cents = cents * (85 + int(chance() * 31)) // 100 // 10_000 * 10_000
        targets.setdefault(product, []).append({"month": month, "target_cents": target_cents})
    return targets


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    rows = list(make_sales())
    write_database(folder / "sales.db", rows)
    snapshot = {"as_of": SNAPSHOT_AS_OF, "currency": "EUR", "targets": make_targets(rows)}
    text = json.dumps(snapshot, indent=1) + "\n"
    (folder / "targets-snapshot.json").write_bytes(text.encode())


if __name__ == "__main__":
    main()
