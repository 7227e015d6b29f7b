"""The picture: boxes of latencies with the highest CPU below them, light and dark by the viewer's own preference.

One panel for each load and number of rules; in it a group for each number of connections, and one box a contestant: from
the 25th to the 75th percentile, with whiskers to the 5th and 95th and a line at the mean, each the median of all rounds.
"""

import math
from html import escape
from statistics import median

from .contestants import ALL
from .plan import BY_NAME

WIDTH, MARGIN = 1100, 32
TOP, LEFT, GAP_X = 120, 56, 76
BOXES, BARS, BETWEEN, ROW = 170, 54, 20, 330
SHARE = 0.7  # of the room of a contestant, for its box
COLOURS = (
    "#8b949e",
    "#7c3aed",
    "#d97706",
    "#eab308",
    "#3b82f6",
    "#1f9d6b",
    "#0891b2",
    "#be185d",
    "#65a30d",
)
STEPS = (1, 2, 5)

STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif; }
text { fill: #1f2328; } .soft { fill: #59636e; } .small { font-size: 11px; }
.title { font-size: 20px; font-weight: 600; } .head { font-size: 14px; font-weight: 600; }
.middle { text-anchor: middle; } .end { text-anchor: end; } .grid { stroke: #d0d7de; stroke-width: 0.7; }
.mean { stroke: #1f2328; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; } text { fill: #e6edf3; } .soft { fill: #9198a1; } .grid { stroke: #30363d; }
  .mean { stroke: #e6edf3; }
}
"""


def picture(result):
    """Of what `report.as_json` has made."""
    shown = {cell["who"] for cell in result["cells"]}
    colours = {kind.name: colour for kind, colour in zip(ALL, COLOURS, strict=True) if kind.name in shown}
    done = [cell | {"turns": [each for each in cell["turns"] if each]} for cell in result["cells"]]
    result = result | {"cells": [cell for cell in done if cell["turns"]]}
    loads = list(dict.fromkeys(cell["load"] for cell in result["cells"]))
    rules = list(dict.fromkeys(cell["rules"] for cell in result["cells"]))
    width = (WIDTH - 2 * MARGIN - len(rules) * LEFT - (len(rules) - 1) * (GAP_X - LEFT)) / max(len(rules), 1)
    parts = [_head(result, colours)]
    for row, load in enumerate(loads):
        for column, count in enumerate(rules):
            cells = [cell for cell in result["cells"] if (cell["load"], cell["rules"]) == (load, count)]
            box = MARGIN + LEFT + column * (width + GAP_X), TOP + row * ROW, width
            if cells:
                parts.append(_panel(f"{BY_NAME[load].title}, {count:,} rules", cells, colours, box))
    height = TOP + len(loads) * ROW
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="What sidecars cost, by who leads traffic to them">\n<style>{STYLE}</style>\n{body}\n</svg>\n'
    )


def _head(result, colours):
    about, plan = result["machine"], result["plan"]
    words = (
        f"{about['cores']} processors, {about['cpu']}, Linux {about['kernel']}; {plan['rounds']} interleaved rounds of "
        f"{plan['seconds']:g} s. Boxes: p5, p25, mean, p75, p95 of latencies, us; bars: highest CPU, processors; "
        "less is better"
    )
    parts = [_text(MARGIN, 34, "Two pods and their sidecars", "title"), _text(MARGIN, 54, words, "soft small")]
    x = MARGIN
    for name, colour in colours.items():
        parts.append(_rect(x, 66, 11, 11, colour) + _text(x + 16, 76, name, ""))
        x += 36 + 7.5 * len(name)
    return "\n".join(parts)


def _panel(title, cells, colours, box):
    x, y, width = box
    groups = list(dict.fromkeys(cell["connections"] for cell in cells))
    slot = width / len(groups) / (len(colours) + 1)
    latencies = [_middle(cell, share) for cell in cells for share in ("p5", "p95", "mean")]
    ticks = _powers(min(latencies), max(latencies))
    def up(value):
        return y + BOXES * (1 - math.log(value / ticks[0]) / math.log(ticks[-1] / ticks[0]))
    base = y + BOXES + BETWEEN + BARS
    highest = max(_highest(cell) for cell in cells)
    parts = [_text(x, y - 12, title, "head")]
    for tick in ticks:
        parts += [_rule(x, up(tick), width), _text(x - 6, up(tick) + 4, f"{tick:,.0f}", "soft small end")]
    parts += [_rule(x, base, width), _text(x - 6, base - BARS + 10, f"{highest:.2f}", "soft small end")]
    parts.append(_text(x - 6, base, "CPU", "soft small end"))
    for cell in cells:
        group, place = groups.index(cell["connections"]), list(colours).index(cell["who"])
        left = x + slot * (group * (len(colours) + 1) + place + 0.5)
        colour = colours[cell["who"]]
        parts.append(_box(cell, up, left, slot, colour))
        tall = BARS * _highest(cell) / highest
        parts.append(_rect(left, base - tall, slot * SHARE, tall, colour))
    for group, connections in enumerate(groups):
        middle = x + width / len(groups) * (group + 0.5)
        name = f"{connections} connection{'s' if connections > 1 else ''}"
        parts.append(_text(middle, base + 16, name, "soft small middle"))
    return "\n".join(parts)


def _box(cell, up, left, slot, colour):
    wide = slot * SHARE
    low, first, mean, third, high = (
        up(_middle(cell, share)) for share in ("p5", "p25", "mean", "p75", "p95")
    )
    middle = left + wide / 2
    return (
        f'<line x1="{middle:.1f}" y1="{low:.1f}" x2="{middle:.1f}" y2="{high:.1f}" stroke="{colour}"/>'
        + _rect(left, third, wide, max(first - third, 1), colour)
        + f'<line class="mean" x1="{left:.1f}" y1="{mean:.1f}" x2="{left + wide:.1f}" y2="{mean:.1f}"/>'
    )


def _middle(cell, share):
    return median(turn["latency_us"][share] for turn in cell["turns"])


def _highest(cell):
    return median(turn["cpu"]["highest"] for turn in cell["turns"])


def _powers(low, high):
    """1, 2, 5, 10, 20, ... around both."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    every = [step * 10.0**power for power in powers for step in STEPS]
    first = max(tick for tick in every if tick <= low)
    last = min(tick for tick in every if tick > high)
    return [tick for tick in every if first <= tick <= last]


def _rule(x, y, width):
    return f'<line class="grid" x1="{x:.1f}" y1="{y:.1f}" x2="{x + width:.1f}" y2="{y:.1f}"/>'


def _rect(x, y, width, height, colour):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="1" fill="{colour}"/>'


def _text(x, y, words, style):
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
