"""What went by ring, as the library itself reports it."""

import json
from dataclasses import dataclass, field

from .errors import LabError


@dataclass
class Traffic:
    """Sums over processes."""

    seen: int = 0
    upgraded: int = 0
    ring_bytes: int = 0
    kernel_bytes: int = 0
    reasons: dict = field(default_factory=dict)

    def __iadd__(self, other):
        self.seen += other.seen
        self.upgraded += other.upgraded
        self.ring_bytes += other.ring_bytes
        self.kernel_bytes += other.kernel_bytes
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        return self


class Report:
    """A report file: one JSON line from each process at its exit."""

    def __init__(self, path):
        self.path = path

    def lines(self):
        if not self.path.exists():
            return []
        return [self._parse(line) for line in self.path.read_text().splitlines()]

    def _parse(self, line):
        try:
            entry = json.loads(line)
            traffic = Traffic(
                seen=entry["seen"],
                upgraded=entry["upgraded"],
                ring_bytes=entry["ring_rx"] + entry["ring_tx"],
                kernel_bytes=entry["kernel_rx"] + entry["kernel_tx"],
                reasons=entry["reasons"],
            )
        except (ValueError, KeyError, TypeError) as why:
            raise LabError(f"{self.path.name}: not a line of a report ({why!r}): {line[:200]}") from why
        return entry["exe"], traffic

    def total(self, program=None):
        """The sum over all processes, or over those whose executable has this file name."""
        total = Traffic()
        for exe, traffic in self.lines():
            if program is None or exe.rsplit("/", 1)[-1] == program:
                total += traffic
        return total
