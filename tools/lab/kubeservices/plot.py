"""The picture: one line a contestant, over the number of Services; light and dark by the viewer's own preference."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from statistics import median

WIDTH, HEIGHT, MARGIN = 1040, 640, 32
COLUMNS, GAP_X, GAP_Y = 2, 90, 84
TOP, PLOT_HEIGHT, LEFT = 110, 200, 56
DOT = 3.5
#: In the order of the contestants.
COLOURS = ("#8b949e", "#1f9d6b", "#3b82f6", "#d97706", "#b3261e", "#7c3aed", "#0891b2", "#be185d")

STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif; }
text { fill: #1f2328; } .soft { fill: #59636e; } .small { font-size: 11px; }
.title { font-size: 20px; font-weight: 600; } .head { font-size: 14px; font-weight: 600; }
.middle { text-anchor: middle; } .end { text-anchor: end; } .grid { stroke: #d0d7de; stroke-width: 0.7; }
polyline { fill: none; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; } text { fill: #e6edf3; } .soft { fill: #9198a1; } .grid { stroke: #30363d; }
}
"""


def picture(result):
    names = list(dict.fromkeys(name for size in result["sizes"] for name in size["results"]))
    colours = dict(zip(names, COLOURS))
    width = (WIDTH - 2 * MARGIN - LEFT - GAP_X) / COLUMNS
    parts = [_head(result, colours)]
    for place, panel in enumerate(PANELS):
        column, row = place % COLUMNS, place // COLUMNS
        x, y = MARGIN + LEFT + column * (width + GAP_X), TOP + row * (PLOT_HEIGHT + GAP_Y)
        parts += [_text(x, y - 28, panel.title, "head"), _text(x, y - 12, panel.hint, "soft small")]
        parts.append(_panel(_lines(result, panel.value), colours, (x, y, width)))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="What a Kubernetes Service costs, by the number of Services">\n<style>{STYLE}</style>\n{body}\n</svg>\n'
    )


def _cost(key):
    """Round by round, so that the machine's own changes from size to size are not in the picture."""

    def value(results):
        cost = results["figures"][key]["cost_of_direct"]
        return cost and cost["median"]

    return value


def _change(results):
    """Only where all there is to change could be loaded."""
    if results["hollow"] or not results["changes"]:
        return None
    return median(change["seen"] for change in results["changes"]) * 1e3


@dataclass(frozen=True)
class Panel:
    title: str
    hint: str
    value: Callable


COST = "times the cost of direct; less is better"
PANELS = (
    Panel("A connection: connect, one request, close; p50", COST, _cost("short_p50")),
    Panel("connect() alone, p50", COST, _cost("connect_p50")),
    Panel("A request on a kept connection, p50", COST, _cost("keep_p50")),
    Panel(
        "One endpoint changed",
        "ms until connections reach it, where all endpoints could be loaded; less is better",
        _change,
    ),
)


def _lines(result, value):
    """name -> [(Services, value)]"""
    lines = {}
    for size in result["sizes"]:
        for name, results in size["results"].items():
            found = value(results)
            if found is not None:
                lines.setdefault(name, []).append((size["services"], found))
    return lines


def _head(result, colours):
    about, plan = result["machine"], result["plan"]
    parts = [
        _text(MARGIN, 34, "Kubernetes Services", "title"),
        _text(
            MARGIN,
            54,
            f"{about['cores']} processors, {about['cpu']}, Linux {about['kernel']}; {plan['rounds']} interleaved rounds, "
            f"{plan['endpoints']} endpoints a Service; by number of Services",
            "soft small",
        ),
    ]
    x = WIDTH - MARGIN
    for name, colour in reversed(colours.items()):
        x -= 26 + 7 * len(name)
        parts.append(f'<circle cx="{x}" cy="30" r="5" fill="{colour}"/>' + _text(x + 10, 34, name, ""))
    return "\n".join(parts)


def _panel(lines, colours, box):
    x, y, width = box
    sizes = sorted({size for line in lines.values() for size, _ in line})
    values = [value for line in lines.values() for _, value in line]
    if not values:
        return ""
    logarithmic = max(values) > WIDE * min(values)
    across = _scale(sizes, math.log, x, x + width)
    ticks = _powers(values) if logarithmic else _steps(values)
    upward = _scale(ticks, math.log if logarithmic else float, y + PLOT_HEIGHT, y)
    parts = []
    for tick in ticks:
        parts.append(
            _rule(x, upward(tick), width) + _text(x - 6, upward(tick) + 4, _short(tick), "soft small end")
        )
    parts += [_text(across(size), y + PLOT_HEIGHT + 18, f"{size:,}", "soft small middle") for size in sizes]
    for name, line in lines.items():
        points = [(across(size), upward(value)) for size, value in line]
        parts.append(_line(points, colours[name]))
    return "\n".join(parts)


def _scale(values, law, begin, end):
    """From values to places, by a law such as the logarithm."""
    low, high = law(min(values)), law(max(values))
    reach = high - low or 1.0
    return lambda value: begin + (law(value) - low) / reach * (end - begin)


STEPS = (1, 2, 5)
#: From here on equal steps would hide what happens at the lower end.
WIDE = 5
MOST_TICKS = 9


def _powers(values):
    """1, 2, 5, 10, 20, ... around all values."""
    powers = range(math.floor(math.log10(min(values))) - 1, math.ceil(math.log10(max(values))) + 2)
    every = [step * 10.0**power for power in powers for step in STEPS]
    low = max(tick for tick in every if tick <= min(values))
    high = min(tick for tick in every if tick > max(values))
    return [tick for tick in every if low <= tick <= high]


def _steps(values):
    """Equal steps around all values, and few of them."""
    for step in (step * 10.0**power for power in range(-2, 6) for step in STEPS):
        first, last = math.floor(min(values) / step), math.ceil(max(values) / step + 0.01)
        if last - first < MOST_TICKS:
            return [number * step for number in range(first, last + 1)]
    raise ValueError(f"no steps for {min(values)} to {max(values)}")


def _short(value):
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def _line(points, colour):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{DOT}" fill="{colour}"/>' for x, y in points)
    return f'<polyline points="{path}" stroke="{colour}"/>{dots}'


def _rule(x, y, width):
    return f'<line class="grid" x1="{x:.1f}" y1="{y:.1f}" x2="{x + width:.1f}" y2="{y:.1f}"/>'


def _text(x, y, words, style):
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
