"""CPU time and memory of processes, read from /proc."""

import os
import re

TICK = os.sysconf("SC_CLK_TCK")


class Stat:
    """The fields of /proc/PID/stat that are used here."""

    def __init__(self, pid):
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
        # The name stands in brackets and may contain anything, brackets too.
        name_end = text.rindex(")")
        self.name = text[text.index("(") + 1 : name_end]
        fields = text[name_end + 2 :].split()
        self.pid, self.state, self.parent = pid, fields[0], int(fields[1])
        self.ticks = sum(int(field) for field in fields[11:15])  # utime stime cutime cstime
        self.started = int(fields[19])


def processes():
    """pid -> Stat of everything that runs now."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                found[int(entry)] = Stat(int(entry))
            except (FileNotFoundError, ProcessLookupError):
                pass  # it ended while we looked
    return found


def tree(*roots):
    """Stats of the given processes and everything that descends from them."""
    everything = processes()
    children = {}
    for stat in everything.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    found, todo = {}, [pid for pid in roots if pid in everything]
    while todo:
        pid = todo.pop()
        if pid not in found:  # one root may descend from another
            found[pid] = everything[pid]
            todo.extend(children.get(pid, []))
    return list(found.values())


def cpu_seconds(*roots):
    """User and system time of the trees, with what their finished children used."""
    return sum(stat.ticks for stat in tree(*roots)) / TICK


def cpu_nanoseconds(pid):
    """What the process's threads used so far, finer than a tick; for looking at idle processes."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total


class Memory:
    """Bytes of one process: its share of private and file pages, its share of shared memory,
    and the memfds it has open or mapped (inode -> bytes allocated, where that can be seen)."""

    def __init__(self, pid):
        rollup = _rollup(pid)
        self.shared = rollup.get("Pss_Shmem", 0)
        self.own = rollup["Pss"] - self.shared
        self.memfds = dict(_memfds(pid))


def _rollup(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return {name: int(kb) * 1024 for name, kb in re.findall(r"^(\w+): +(\d+) kB", file.read(), re.M)}


def _memfds(pid):
    for folder in ("fd", "map_files"):  # the second needs privilege; the shares above stand in for it
        try:
            names = os.listdir(f"/proc/{pid}/{folder}")
        except PermissionError:
            continue
        for name in names:
            path = f"/proc/{pid}/{folder}/{name}"
            try:
                if os.readlink(path).startswith("/memfd:"):
                    stat = os.stat(path)
                    yield stat.st_ino, stat.st_blocks * 512
            except (FileNotFoundError, PermissionError):
                pass
