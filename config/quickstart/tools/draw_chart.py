"""draw_chart (idempotent): a bar chart of sales per month with the targets marked, as SVG.

The same input gives the same bytes, and the file appears whole or not at all.
"""

import hashlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python3 -I leaves it out
import toolkit

from xml.sax.saxutils import escape

WIDTH_PX_MIN = 480
COLUMN_PX_MIN = 84
BAR_PX = 52
LEFT_PX = 96
RIGHT_PX = 24
PLOT_TOP_PX = 84
PLOT_HEIGHT_PX = 260
HEIGHT_PX = 384
FLOOR_PX = PLOT_TOP_PX + PLOT_HEIGHT_PX

STYLE = """
    text { font-family: sans-serif; font-size: 12px; fill: #222; }
    .title { font-size: 18px; font-weight: bold; }
    .axis, .value, .month { text-anchor: middle; }
    .axis { text-anchor: end; }
    .grid { stroke: #ddd; }
    .bar { fill: #9cc3e6; }
    .target { stroke: #b3261e; stroke-width: 3; }
"""


def draw_chart(title, months, targets, path):
    toolkit.unique_months("months", months)
    targets = {
        month: entry["target_cents"]
        for month, entry in toolkit.unique_months("targets", targets).items()
    }
    svg = chart(title, months, targets).encode()
    toolkit.write_atomically(path, svg)
    return {
        "path": path,
        "bytes": len(svg),
        "sha256": hashlib.sha256(svg).hexdigest(),
        "bars": len(months),
    }


def chart(title, months, targets):
    shown = [entry["total_cents"] for entry in months]
    shown += [targets[entry["month"]] for entry in months if entry["month"] in targets]
    step_cents = tick_step(max(shown))
    top_cents = max(1, -(-max(shown) // step_cents)) * step_cents
    around_px = LEFT_PX + RIGHT_PX
    width_px = max(WIDTH_PX_MIN, around_px + COLUMN_PX_MIN * len(months), 48 + 12 * len(title))
    column_px = (width_px - around_px) // len(months)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width_px}" height="{HEIGHT_PX}"'
        f' viewBox="0 0 {width_px} {HEIGHT_PX}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{width_px}" height="{HEIGHT_PX}" fill="#fff"/>',
        f'<text class="title" x="24" y="34">{escape(title)}</text>',
        *legend(),
    ]
    for tick_cents in range(0, top_cents + 1, step_cents):
        lines += grid_line(tick_cents, height_px(tick_cents, top_cents), width_px)
    for index, entry in enumerate(months):
        middle = LEFT_PX + column_px * index + column_px // 2
        lines += column(middle, entry, targets.get(entry["month"]), top_cents)
    return "\n".join([*lines, "</svg>", ""])


def tick_step(highest_cents):
    """The smallest of 1, 2, 5, 10, 20, … euros that covers the highest in six steps."""
    decade_cents = 100
    while True:
        for step_cents in (decade_cents, 2 * decade_cents, 5 * decade_cents):
            if step_cents * 6 >= highest_cents:
                return step_cents
        decade_cents *= 10


def height_px(amount_cents, top_cents):
    """Whole pixels, in integers: no platform may round otherwise."""
    return (amount_cents * PLOT_HEIGHT_PX + top_cents // 2) // top_cents


def legend():
    return [
        '<rect class="bar legend" x="24" y="50" width="14" height="14"/>',
        '<text x="44" y="62">sales, EUR</text>',
        '<line class="target legend" x1="134" y1="57" x2="154" y2="57"/>',
        '<text x="160" y="62">target, EUR</text>',
    ]


def grid_line(amount_cents, up_px, width_px):
    y = FLOOR_PX - up_px
    return [
        f'<line class="grid" x1="{LEFT_PX}" y1="{y}" x2="{width_px - RIGHT_PX}" y2="{y}"/>',
        f'<text class="axis" x="{LEFT_PX - 10}" y="{y + 4}">{amount_cents // 100:,}</text>',
    ]


def column(middle, entry, target_cents, top_cents):
    month, total_cents = entry["month"], entry["total_cents"]
    left = middle - BAR_PX // 2
    up_px = height_px(total_cents, top_cents)
    # The value stands at the foot of its bar, away from the target's line near the top.
    lines = [
        f'<rect class="bar" x="{left}" y="{FLOOR_PX - up_px}" width="{BAR_PX}" height="{up_px}">'
        f"<title>{month}: EUR {toolkit.euros(total_cents)}</title></rect>",
        f'<text class="value" x="{middle}" y="{FLOOR_PX - 8}">{(total_cents + 50) // 100:,}</text>',
        f'<text class="month" x="{middle}" y="{FLOOR_PX + 20}">{month}</text>',
    ]
    if target_cents is not None:
        y = FLOOR_PX - height_px(target_cents, top_cents)
        lines.append(
            f'<line class="target" x1="{left - 8}" y1="{y}" x2="{left + BAR_PX + 8}" y2="{y}">'
            f"<title>{month} target: EUR {toolkit.euros(target_cents)}</title></line>"
        )
    return lines


MONTH = toolkit.fields(
    {"month": toolkit.month, "total_cents": toolkit.cents}, {"units": toolkit.count}
)

if __name__ == "__main__":
    toolkit.run(
        draw_chart,
        {
            "title": toolkit.text,
            "months": toolkit.list_of(MONTH, count_min=1),
            "targets": toolkit.list_of(toolkit.TARGET),
            "path": toolkit.path,
        },
    )
