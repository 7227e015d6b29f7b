"""Is it level? The median of the last third is held against that of the second third.

What may lie between them is half of what a leak of one unit (descriptor, mapping, thread, page) for every 1000
connections would have put there, and never less than the floor: what the metric moves by itself, as seen on kernel
TCP and in long runs. `sees` says which leak the run was long enough to see: one unit in so many connections.
"""

from dataclasses import dataclass
from statistics import median

CONNECTIONS_A_UNIT = 1000
SHARE = 0.5
LEAST_SAMPLES = 9

# In units. Descriptors and the library's own mappings are exact between two loads; a heap of megabytes is not.
FLOORS = {"fds": 1, "mappings": 4, "threads": 0, "rss": 16, "shared": 16, "own_pages": 8, "own_mappings": 1}


@dataclass
class Verdict:
    role: str
    metric: str
    second: float
    last: float
    allowed: float
    connections: int
    level: bool

    @property
    def sees(self):
        """Connections for one leaked unit, at most, that this run would have shown."""
        return self.connections / self.allowed if self.allowed else float("inf")


def judge(role, metric, samples, floor=None):
    """`samples`: (connections so far, value), in order. The first third is the warm-up."""
    third = len(samples) // 3
    second, last = samples[third:2 * third], samples[2 * third:]
    between = median(c for c, _ in last) - median(c for c, _ in second)
    allowed = max(FLOORS[metric] if floor is None else floor, SHARE * between / CONNECTIONS_A_UNIT)
    values = [median(v for _, v in part) for part in (second, last)]
    return Verdict(role, metric, *values, allowed, int(between), values[1] - values[0] <= allowed)
