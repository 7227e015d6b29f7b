"""Better, worse or no difference, from pairs of rounds.

The two turns of a round are next to each other in time, so the machine's drift is in both; what is looked at is the ratio
of the two. The estimate is Hodges and Lehmann's, the median of the means of all pairs of (logarithms of) ratios, and the
interval is the one that belongs to Wilcoxon's signed ranks: exact for any distribution, not upset by one round that
something disturbed. There is a difference only if 1 is not in it.
"""

import math
from dataclasses import dataclass
from statistics import median

BETTER, WORSE, SAME, OPEN = "better", "worse", "no difference", "too few rounds"


@dataclass(frozen=True)
class Comparison:
    """`ratio` of the one to the other; below 1 is better if less is."""

    ratio: float
    #: None where there are too few rounds for any interval.
    low: float | None
    high: float | None
    word: str


def compare(own, other, better, confidence):
    """`better` is "lower" or "higher". A round that one of them lacks does not count; None if there is no other."""
    pairs = [(a, b) for a, b in zip(own, other) if a and b]
    if not pairs:
        return None
    logs = [math.log(a / b) for a, b in pairs]
    means = sorted((a + b) / 2 for place, a in enumerate(logs) for b in logs[place:])
    cut = depth(len(logs), confidence)
    ratio = math.exp(median(means))
    if cut is None:
        return Comparison(ratio, None, None, OPEN)
    low, high = math.exp(means[cut]), math.exp(means[-1 - cut])
    if low <= 1 <= high:
        return Comparison(ratio, low, high, SAME)
    ahead = (high < 1) == (better == "lower")
    return Comparison(ratio, low, high, BETTER if ahead else WORSE)


def depth(count, confidence):
    """How many means lie outside of the interval at each end; None if even all of them are too narrow an interval."""
    allowed = (1 - confidence) / 2
    ways, sums = 0, ranks(count)
    total = sum(sums)
    for smallest, each in enumerate(sums):
        ways += each
        if ways / total > allowed:
            return smallest - 1 if smallest else None
    raise ValueError(f"confidence: {confidence}")


def ranks(count):
    """How many of all choices of signs give each sum of the ranks 1 to `count` that are positive."""
    sums = [1]
    for rank in range(1, count + 1):
        longer = sums + [0] * rank
        for place, each in enumerate(sums):
            longer[place + rank] += each
        sums = longer
    return sums
