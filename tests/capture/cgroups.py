"""Cgroups of pods. Everybody else stays where they are, and knows nothing of what is captured."""

import contextlib
import os
from pathlib import Path

from support import wait
from support.failure import Failure

# Alone, or beside version 1.
MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
PREFIX = "sidestep-capture-"


class Cgroup:
    def __init__(self, path):
        self.path = path
        path.mkdir()

    def around(self, command):
        """The command, so that it and its children are members from their first instruction on."""
        return ["sh", "-ec", f'echo $$ >{self.path}/cgroup.procs; exec "$@"', "sh", *(str(word) for word in command)]

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        """Processes that have just ended are members for a moment more."""
        wait.until(self.is_removed, f"{self.path} to be empty")

    def is_removed(self):
        for path in sorted(self.path.glob("**/"), reverse=True):
            with contextlib.suppress(OSError):
                path.rmdir()
        return not self.path.exists()


def of_this_run():
    return Cgroup(version_2() / f"{PREFIX}{os.getpid()}-pods")


def version_2():
    for path in MOUNTS:
        if (path / "cgroup.controllers").exists():
            return path
    raise Failure(f"cgroup v2 is mounted neither at {MOUNTS[0]} nor at {MOUNTS[1]}")
