"""What is compared, and how it is read from a turn."""

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Figure:
    key: str
    title: str
    #: "higher" or "lower".
    better: str
    #: Only where as much is sent as is answered.
    saturated: bool = False

    def of(self, turn):
        match self.key:
            case "rate":
                return turn["answered"] / turn["seconds"]
            case "cpu":
                return sum(turn["cpu"]["request_us"].values())
            case "path_cpu":
                return sum(each for name, each in turn["cpu"]["request_us"].items() if name.endswith("-app"))
            case "highest":
                return turn["cpu"]["highest"]
        return turn["latency_us"][self.key]

    def values(self, turns):
        """One a round; None where the turn has failed."""
        return [turn and self.of(turn) for turn in turns]

    def median(self, turns):
        return median(self.values(filter(None, turns)))


RATE = Figure("rate", "requests/s", "higher", saturated=True)
P50, P90, P99, P999 = LATENCIES = tuple(
    Figure(key, title, "lower")
    for key, title in (("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p999", "p99.9"))
)
CPU = Figure("cpu", "CPU a request", "lower")
HIGHEST = Figure("highest", "highest CPU", "lower")
#: For who goes round the sidecars: what they use while they are idle is no request's.
PATH_CPU = Figure("path_cpu", "CPU a request without sidecars", "lower")
ALL = (*LATENCIES, CPU, HIGHEST, RATE)


def compared(cell, figures=ALL):
    """Those that mean something there: at a rate all answer as many, and at saturation all use what there is."""
    return [figure for figure in figures if cell.saturated or not figure.saturated]
