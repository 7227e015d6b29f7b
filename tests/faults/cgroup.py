"""A control group with a memory limit, of either version, that is gone afterwards."""

import contextlib
import re
from pathlib import Path

from faults.outcome import NotTried
from testkit import cgroups

V1 = Path("/sys/fs/cgroup/memory")


class Group:
    """`limit` and `events`: the files that say how much is allowed and what has happened."""

    def __init__(self, root, limit, events):
        self.cgroup = cgroups.of_this_run("memory", root)
        self.limit = self.cgroup.path / limit
        self.events = self.cgroup.path / events

    def around(self):
        """What a process is started inside of."""
        return self.cgroup.around([])

    def kills(self):
        """How many processes the kernel has killed for want of memory."""
        return int(re.search(r"^oom_kill (\d+)$", self.events.read_text(), re.MULTILINE).group(1))


def make():
    """The one that can be had on this machine."""
    if (V1 / "memory.limit_in_bytes").exists():
        return Group(V1, "memory.limit_in_bytes", "memory.oom_control")
    for root in cgroups.MOUNTS:
        control = root / "cgroup.subtree_control"
        if control.exists() and "memory" in control.read_text().split():
            return Group(root, "memory.max", "memory.events")
    raise NotTried("no memory controller")


@contextlib.contextmanager
def limited(size):
    try:
        group = make()
    except OSError as error:
        raise NotTried(f"no control group may be made: {error}") from None
    try:
        limit(group, size)
        yield group
    finally:
        group.cgroup.remove()


def limit(group, size):
    try:
        group.limit.write_text(str(size))
    except OSError as error:
        raise NotTried(f"no limit may be set: {error}") from None
