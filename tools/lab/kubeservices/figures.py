"""Medians and quartiles, and ratios taken round by round.

The machine's speed drifts while it is measured, and others use it. Two turns of one round share that, so each round gives
one ratio; the median of these is the result, and the quartiles tell how far rounds differ.
"""

from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values):
        """None of nothing."""
        values = list(values)
        if not values:
            return None
        low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
        return Spread(median(values), low, high, len(values))


@dataclass(frozen=True)
class Figure:
    """Something that is measured in every round."""

    key: str
    title: str
    unit: str
    #: "short" or "keep", and the way to it in the client's answer.
    run: str
    path: tuple
    #: "higher" or "lower".
    better: str

    def values(self, results):
        return [follow(answer, self.path) for answer in getattr(results, self.run)]

    def spread(self, results):
        return Spread.of(self.values(results))

    def cost(self, results, base):
        """How many times more than `base` it costs, round by round: above 1 is worse, for rates and for times."""
        pairs = zip(self.values(results), self.values(base), strict=True)
        ratios = [own / other if self.better == "lower" else other / own for own, other in pairs]
        return Spread.of(ratios)


def follow(answer, path):
    if path == ("rate",):
        return answer["whole"]["units"] / answer["seconds"]
    for name in path:
        answer = answer[name]
    return answer


RATE = Figure("rate", "connections/s", "1/s", "short", ("rate",), "higher")
CONNECT = [
    Figure(f"connect_p{p}", f"connect() p{p}", "us", "short", ("connect", f"p{p}_us"), "lower")
    for p in (50, 90, 99)
]
SHORT = [
    Figure(f"short_p{p}", f"connection p{p}", "us", "short", ("whole", f"p{p}_us"), "lower")
    for p in (50, 90, 99)
]
SHORT_CPU = Figure("short_cpu", "CPU a connection", "us", "short", ("cpu_us",), "lower")
KEEP = [
    Figure(f"keep_p{p}", f"request p{p}", "us", "keep", ("whole", f"p{p}_us"), "lower") for p in (50, 90, 99)
]
KEEP_CPU = Figure("keep_cpu", "CPU a request", "us", "keep", ("cpu_us",), "lower")
ALL = (RATE, *CONNECT, *SHORT, SHORT_CPU, *KEEP, KEEP_CPU)
BY_KEY = {figure.key: figure for figure in ALL}
