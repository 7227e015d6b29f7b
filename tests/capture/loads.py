"""Connections without end, of which each outcome is counted."""

import mmap
import struct
from collections import Counter

from capture.clients import outcome
from capture.worlds import PORT
from testkit import wait

# What becomes of a connection whose proxy ends.
BROKEN = ("ECONNREFUSED", "ECONNRESET", "EPIPE", "ENODATA")
ENOUGH = 20


class Load:
    """A task, and how many connections it has made."""

    def __init__(self, asker, hosts):
        # Shared with the process that is forked.
        self.done = mmap.mmap(-1, 8)
        self.task = asker.start(run, hosts, self.done)

    def count(self):
        return struct.unpack("Q", self.done[:8])[0]


def start(asker, answerer):
    return Load(asker, list(answerer.ip.values()))


def stop(load):
    return load.task.stop()


def wait_for_more(loads, count=ENOUGH):
    """Until each has made so many more."""
    before = [load.count() for load in loads]
    wait.until(lambda: all(load.count() >= start + count for load, start in zip(loads, before)), "more connections", 30)


def run(hosts, done, stopped):
    counts = Counter()
    while not stopped():
        counts[outcome(hosts[counts.total() % len(hosts)], PORT)] += 1
        done[:8] = struct.pack("Q", counts.total())
    return dict(counts)
