"""The demo's picture: bars drawn by hand, light and dark by the viewer's own preference."""

from html import escape

from . import table

#: One row of panels each.
SHOWN = (
    ("rate", "requests per second", "more is better"),
    ("p90", "p90 latency, us", "less is better"),
    ("cpu", "CPU seconds per 100,000 requests", "less is better"),
)
WIDTH, MARGIN, GAP = 1040, 32, 28
TOP, PANEL, BARS = 104, 232, 124  # px: first panel's y, a panel's height, the highest bar

STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif; }
text { fill: #1f2328; } .soft { fill: #59636e; } .small { font-size: 11px; }
.title { font-size: 20px; font-weight: 600; } .head { font-size: 14px; font-weight: 600; }
.middle { text-anchor: middle; } .ahead { font-weight: 600; fill: #0a7d4f; } .behind { font-weight: 600; fill: #b3261e; }
.plain { fill: #a8b3bf; } .sidestep { fill: #1f9d6b; } .axis { stroke: #d0d7de; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; } text { fill: #e6edf3; } .soft { fill: #9198a1; }
  .ahead { fill: #4cc38a; } .behind { fill: #ff8a80; }
  .plain { fill: #57606a; } .sidestep { fill: #2fb380; } .axis { stroke: #30363d; }
}
"""


def demo(result, titles):
    """The whole picture as text."""
    paths = list(dict.fromkeys(cell["path"] for cell in result["cells"]))
    height = TOP + len(SHOWN) * PANEL + 24
    column = (WIDTH - 2 * MARGIN - (len(paths) - 1) * GAP) / len(paths)
    parts = [_head(result)]
    for row, (metric, title, hint) in enumerate(SHOWN):
        for number, path in enumerate(paths):
            cells = [cell for cell in result["cells"] if cell["path"] == path]
            x, y = MARGIN + number * (column + GAP), TOP + row * PANEL
            parts.append(
                _text(x, y, titles[path], "head") + _text(x, y + 16, f"{title}, {hint}", "soft small")
            )
            parts.append(_panel(cells, metric, x, y + 16, column))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Sidestep compared with kernel TCP">\n<style>{STYLE}</style>\n{body}\n</svg>\n'
    )


def _head(result):
    machine, plan = result["machine"], result["plan"]
    variants = result["cells"][0]["metrics"]["rate"]["median"]
    versions = ", ".join(f"{name} {machine['programs'][name]}" for name in ("wrk", "nginx", "envoy"))
    parts = [
        _text(MARGIN, 38, "Local TCP: kernel and Sidestep", "title"),
        _text(
            MARGIN,
            60,
            f"{versions}; {machine['cores']} cores, {machine['cpu']}, Linux {machine['kernel']}; "
            f"medians of {plan['pairs']} interleaved pairs",
            "soft small",
        ),
    ]
    x = WIDTH - MARGIN - 160
    for name, title in (("plain", "kernel"), ("sidestep", "Sidestep")):
        if name in variants:
            parts.append(_bar(name, x, 28, 12, 12) + _text(x + 18, 38, title, ""))
            x += 84
    return "\n".join(parts)


def _panel(cells, metric, x, y, width):
    """Groups of bars, one for each number of connections, on one common scale."""
    highest = max(value for cell in cells for value in cell["metrics"][metric]["median"].values()) or 1
    base = y + 28 + BARS
    group = width / len(cells)
    parts = [f'<line class="axis" x1="{x:.1f}" y1="{base}" x2="{x + width:.1f}" y2="{base}"/>']
    for number, cell in enumerate(cells):
        figures = cell["metrics"][metric]
        middle = x + group * (number + 0.5)
        wide = min(40.0, group / 3)
        left = middle - wide * len(figures["median"]) / 2
        for name, value in figures["median"].items():
            tall = BARS * value / highest
            parts.append(_bar(name, left + 1, base - tall, wide - 2, tall))
            parts.append(_text(left + wide / 2, base - tall - 4, _short(value), "small middle"))
            left += wide
        many = cell["connections"]
        parts.append(
            _text(middle, base + 16, f"{many} connection{'s' if many > 1 else ''}", "soft small middle")
        )
        if figures["factor"]:
            ratio = figures["factor"]["median"]
            side = "ahead" if ratio >= 1 else "behind"
            parts.append(
                _text(
                    middle,
                    base + 31,
                    f"{ratio:.2f}x better" if ratio >= 1 else f"{ratio:.2f}x",
                    f"{side} small middle",
                )
            )
    return "\n".join(parts)


def _short(value):
    return f"{value / 1000:.0f}k" if value >= 10_000 else table.number(value)


def _bar(name, x, y, width, height):
    return (
        f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="1.5"/>'
    )


def _text(x, y, words, style):
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
