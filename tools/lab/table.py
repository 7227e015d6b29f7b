"""Figures as people read them."""


def number(value):
    """Three significant digits, or all before the point; thousands apart."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.01 or value == 0 else f"{value:.4f}"
