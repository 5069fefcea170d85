"""cached_targets (read): the sales targets from the last snapshot, said to be stale.

The fallback of fetch_targets: it is given the same arguments, and ignores `url`.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python3 -I leaves it out
import toolkit


def cached_targets(product, date_range, snapshot="data/targets-snapshot.json", url=None):
    stored = read_snapshot(toolkit.config_path(snapshot))
    if product not in stored["targets"]:
        raise toolkit.ToolError(f"no targets for product {product!r} in the snapshot")
    months = toolkit.months_of(date_range)
    targets = [entry for entry in stored["targets"][product] if entry["month"] in months]
    if not targets:
        raise toolkit.ToolError(f"the snapshot has no targets from {months[0]} to {months[-1]}")
    return {"targets": targets, "stale": True, "as_of": stored["as_of"]}


def read_snapshot(file):
    try:
        stored = json.loads(file.read_bytes())
        return toolkit.check_fields(
            "snapshot",
            stored,
            {"as_of": toolkit.text, "currency": toolkit.text, "targets": by_product},
            {},
        )
    except FileNotFoundError:
        raise toolkit.ToolError(f"snapshot: no such file: {file}") from None
    except (ValueError, RecursionError, toolkit.ArgumentError) as error:
        raise toolkit.ToolError(f"the snapshot {file} is damaged: {error}") from None


def by_product(name, value):
    if not isinstance(value, dict):
        raise toolkit.ArgumentError(f"{name}: must be a JSON object")
    check = toolkit.list_of(toolkit.TARGET)
    return {product: check(f"{name}.{product}", entries) for product, entries in value.items()}


def anything(name, value):
    return value


if __name__ == "__main__":
    toolkit.run(
        cached_targets,
        {"product": toolkit.text, "date_range": toolkit.date_range},
        {"snapshot": toolkit.path, "url": anything},
    )
