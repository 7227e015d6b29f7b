"""Processes and their descendants, read from /proc."""

import os


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
