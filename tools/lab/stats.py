"""Medians, and ratios taken pair by pair.

The machine's speed drifts while it is measured. Two runs next to each other share the drift,
so each pair gives one ratio; the median of these ratios is the result and their range its spread.
"""

from dataclasses import dataclass
from statistics import median

__all__ = ["Ratio", "factor", "median"]


@dataclass(frozen=True)
class Ratio:
    median: float
    low: float
    high: float
    pairs: int


def factor(base, other, better):
    """How many times better `other` is than `base`, pair by pair.

    `better` is "higher" for rates (other / base) and "lower" for times and costs (base / other),
    so above 1 always means that `other` is ahead. None where nothing can be compared.
    """
    if better not in ("higher", "lower"):
        raise ValueError(f"better: {better!r}")
    if len(base) != len(other):
        raise ValueError(f"pairs do not match: {len(base)} and {len(other)}")
    tops, bottoms = (other, base) if better == "higher" else (base, other)
    ratios = [top / bottom for top, bottom in zip(tops, bottoms) if bottom > 0]
    if not ratios:
        return None
    return Ratio(median(ratios), min(ratios), max(ratios), len(ratios))
