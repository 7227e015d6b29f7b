"""The report files: one JSON line for each process that ended, see `sidestep run --report`."""

import json
from pathlib import Path

from testkit.failure import Failure

COUNTERS = ("seen", "upgraded", "returned", "ring_rx", "ring_tx", "kernel_rx", "kernel_tx", "stack_rx", "stack_tx")


class Report:
    """All lines of one file, summed."""

    def __init__(self, path):
        self.path = Path(path)
        self.lines = _read(self.path)
        for counter in COUNTERS:
            setattr(self, counter, sum(line[counter] for line in self.lines))

    @property
    def ring(self):
        return self.ring_rx + self.ring_tx

    @property
    def kernel(self):
        return self.kernel_rx + self.kernel_tx

    def reasons(self):
        total = {}
        for line in self.lines:
            for name, count in line["reasons"].items():
                total[name] = total.get(name, 0) + count
        return total

    def __str__(self):
        if not self.lines:
            return f"{self.path.name}: empty, no process wrote a line"
        return (f"{self.path.name}: {len(self.lines)} processes, seen {self.seen}, upgraded {self.upgraded}, "
                f"returned {self.returned}, ring {self.ring_rx}+{self.ring_tx}, "
                f"kernel {self.kernel_rx}+{self.kernel_tx} bytes, reasons {self.reasons()}")


def _read(path):
    if not path.exists():
        return []
    lines = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            line = json.loads(text)
            missing = [name for name in (*COUNTERS, "pid", "exe", "reasons") if name not in line]
        except ValueError as error:
            raise Failure(f"{path}:{number}: not a JSON line ({error}): {text[:200]!r}") from error
        if missing:
            raise Failure(f"{path}:{number}: lacks {', '.join(missing)}")
        lines.append(line)
    return lines
