"""A control group with a memory limit, of either version, that is gone afterwards."""

import contextlib
import os
import re
from pathlib import Path

from outcome import NotTried
from support import wait

V1 = Path("/sys/fs/cgroup/memory")
V2 = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


class Group:
    """`limit` and `events`: the files that say how much is allowed and what has happened."""

    def __init__(self, path, limit, events):
        self.path = path
        self.limit = path / limit
        self.events = path / events

    def around(self):
        """What a process is started inside of."""
        return ["sh", "-ec", f'echo $$ >{self.path}/cgroup.procs; exec "$@"', "sh"]

    def kills(self):
        """How many processes the kernel has killed for want of memory."""
        return int(re.search(r"^oom_kill (\d+)$", self.events.read_text(), re.MULTILINE).group(1))


def find():
    """The group to be made on this machine."""
    name = f"sidestep-faults-{os.getpid()}"
    if (V1 / "memory.limit_in_bytes").exists():
        return Group(V1 / name, "memory.limit_in_bytes", "memory.oom_control")
    for root in V2:
        control = root / "cgroup.subtree_control"
        if control.exists() and "memory" in control.read_text().split():
            return Group(root / name, "memory.max", "memory.events")
    raise NotTried("no memory controller")


@contextlib.contextmanager
def limited(size):
    group = find()
    try:
        group.path.mkdir()
        group.limit.write_text(str(size))
    except OSError as error:
        raise NotTried(f"no control group may be made: {error}") from None
    try:
        yield group
    finally:
        wait.until(lambda: removed(group.path), f"{group.path} to be empty")


def removed(path):
    """Processes that have just ended are counted for a moment more."""
    with contextlib.suppress(OSError):
        path.rmdir()
    return not path.exists()
