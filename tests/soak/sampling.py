"""What a process holds, from /proc: descriptors, mappings, threads, memory."""

import os
import re
from pathlib import Path

# Mappings of the library: its file, what it shares with its children and its peers.
OURS = ("libsidestep.so", "/memfd:sidestep", "/dev/zero")
HEADER = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \d+ *(.*)$")

METRICS = ("fds", "mappings", "threads", "rss", "shared", "own_pages", "own_mappings")


def of(pids):
    """The sum over the processes of one service."""
    total = dict.fromkeys(METRICS, 0)
    for pid in pids:
        for key, value in one(pid).items():
            total[key] += value
    return total


def one(pid):
    rollup = _kilobytes(Path(f"/proc/{pid}/smaps_rollup").read_text())
    mappings, own_mappings, own_bytes = _mappings(pid)
    return {
        "fds": len(os.listdir(f"/proc/{pid}/fd")),
        "mappings": mappings,
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "rss": rollup["Rss"] // PAGE,
        "shared": rollup.get("Pss_Shmem", 0) // PAGE,
        "own_pages": own_bytes // PAGE,
        "own_mappings": own_mappings,
    }


PAGE = os.sysconf("SC_PAGE_SIZE")


def _kilobytes(text):
    return {name: int(kb) * 1024 for name, kb in re.findall(r"^(\w+): +(\d+) kB", text, re.MULTILINE)}


def _mappings(pid):
    """All mappings; those of the library, and their resident bytes. Its .bss has no name but follows its file."""
    count = own = own_bytes = 0
    ours, our_end = False, None
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if found := HEADER.match(line):
            start, end, name = found.groups()
            count += 1
            ours = any(word in name for word in OURS) or (not name and start == our_end)
            own += ours
            our_end = end if ours and "memfd" not in name else None
        elif ours and line.startswith("Rss:"):
            own_bytes += int(line.split()[1]) * 1024
    return count, own, own_bytes


def cpu_ms(pids):
    """Milliseconds on a processor so far. By the scheduler's own account: clock ticks fall on short work by chance."""
    return sum(int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0]) / 1e6
               for pid in pids for task in os.listdir(f"/proc/{pid}/task"))


def switches(pids):
    """How often the threads have gone to sleep: what wakes up for nothing is seen here before it makes a tick."""
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{task}/status").read_text()
            total += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.MULTILINE).group(1))
    return total
