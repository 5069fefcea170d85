"""query_sales (read): what was sold of one product in a date range, by month and by region."""

import contextlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python3 -I leaves it out
import toolkit

SALES = """
    SELECT substr(sold_on, 1, 7), region, count(*), sum(units), sum(total_cents)
    FROM sales WHERE product = :product AND sold_on BETWEEN :from AND :to
    GROUP BY 1, 2 ORDER BY 1, 2
"""


def query_sales(database, product, date_range):
    with contextlib.closing(toolkit.open_read_only(database)) as sales:
        if not sales.execute("SELECT 1 FROM sales WHERE product = ?", [product]).fetchone():
            raise toolkit.ToolError(f"no product {product!r} in the sales database")
        groups = sales.execute(SALES, {"product": product, **date_range}).fetchall()
    by_month = {month: [0, 0] for month in toolkit.months_of(date_range)}
    by_region = {}
    for month, region, _, units, total_cents in groups:
        for sums in (by_month[month], by_region.setdefault(region, [0, 0])):
            sums[0] += units
            sums[1] += total_cents
    return {
        "rows": sum(group[2] for group in groups),
        "total_cents": sum(group[4] for group in groups),
        "currency": "EUR",
        "by_month": named("month", by_month),
        "by_region": named("region", by_region),
    }


def named(key, sums):
    return [
        {key: name, "units": units, "total_cents": total_cents}
        for name, (units, total_cents) in sorted(sums.items())
    ]


if __name__ == "__main__":
    toolkit.run(
        query_sales,
        {"database": toolkit.path, "product": toolkit.text, "date_range": toolkit.date_range},
    )
