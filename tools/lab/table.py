"""Text tables, and figures as people read them."""


def text(head, rows, left=1):
    """Aligned columns; the first `left` ones to the left, the others to the right. None is a blank line."""
    cells = [head] + [row for row in rows if row is not None]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]

    def line(row):
        parts = (cell.ljust(w) if n < left else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths)))
        return "  ".join(parts).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(head), rule] + ["" if row is None else line(row) for row in rows])


def number(value):
    """Three significant digits, or all before the point; thousands apart."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.01 or value == 0 else f"{value:.4f}"


def times(ratio):
    """The median of a Ratio."""
    return "-" if ratio is None else f"{ratio.median:.2f}x"


def spread(ratio):
    return "" if ratio is None else f"({ratio.low:.2f}-{ratio.high:.2f})"


def size(count):
    """Bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
