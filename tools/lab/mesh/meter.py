"""CPU of each program of a mesh, and of the whole machine.

A program's is its cgroup's (cpu.stat), with the interrupts that were handled while it ran. The machine's is the time in
which its processors were not idle, whoever used them: the kernel measures how long they are idle, while what they do
otherwise it may only look at from tick to tick, and a load that is bound to the clock hides between ticks.
"""

import os
import threading
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
#: Of a line of /proc/stat: idle and iowait.
IDLE = slice(4, 6)


def used(cgroup):
    """Microseconds: all, and those of them in the kernel."""
    lines = (cgroup / "cpu.stat").read_text(encoding="ascii").splitlines()
    stat = dict(line.split() for line in lines)
    return int(stat["usage_usec"]), int(stat["system_usec"])


def idle(text=None):
    """Seconds that the processors were idle, all of them together, and how many there are."""
    lines = (text or Path("/proc/stat").read_text(encoding="ascii")).splitlines()
    each = [line.split() for line in lines if line.startswith("cpu") and not line.startswith("cpu ")]
    return sum(int(ticks) for words in each for ticks in words[IDLE]) / TICKS, len(each)


class Meter:
    """From its entry to its exit. `programs` maps names to cgroups, one of them all programs' together."""

    def __init__(self, programs, whole, piece):
        self._programs, self._whole, self._piece = programs, whole, piece
        self._over = threading.Event()
        self._highest = 0.0

    def __enter__(self):
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._begin = self._read()
        self._watcher.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._watcher.join()
        self._end = self._read()

    def _read(self):
        return time.monotonic(), idle(), {name: used(path) for name, path in self._programs.items()}

    def _watch(self):
        (before, _), at = used(self._whole), time.monotonic()
        while not self._over.wait(self._piece):
            (now, _), time_now = used(self._whole), time.monotonic()
            self._highest = max(self._highest, (now - before) / (time_now - at) / 1e6)
            before, at = now, time_now

    def told(self, requests):
        """Processors in use, on the average and at most, and microseconds a request of each program."""
        (begun, (idle_before, count), before), (ended, (idle_after, _), after) = self._begin, self._end
        seconds = ended - begun
        spent, kernel = ({name: after[name][kind] - before[name][kind] for name in after} for kind in (0, 1))
        return {
            "machine": max(count - (idle_after - idle_before) / seconds, 0.0),
            "programs": sum(spent.values()) / seconds / 1e6,
            "highest": self._highest,
            "request_us": {name: each / requests for name, each in spent.items()},
            "kernel_us": {name: each / requests for name, each in kernel.items()},
        }
