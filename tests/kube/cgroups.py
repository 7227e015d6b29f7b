"""The cgroup whose members Sidestep serves. Everybody else stays where they are, and knows nothing of it."""

import contextlib
import os
from pathlib import Path

from support import wait
from support.failure import Failure

# Alone, or beside version 1.
MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


PREFIX = "sidestep-kube-"


class Cgroup:
    def __init__(self, name, parent=None):
        self.path = parent.path / name if parent else version_2() / f"{PREFIX}{os.getpid()}-{name}"

    def make(self):
        self.path.mkdir()

    def around(self, command):
        """The command, so that it and its children are members from their first instruction on."""
        return ["sh", "-ec", f'echo $$ >{self.path}/cgroup.procs; exec "$@"', "sh", *command]

    def is_empty(self):
        return not (self.path / "cgroup.procs").read_text()

    def kill(self):
        """All members, of those below as well."""
        if self.path.exists():
            (self.path / "cgroup.kill").write_text("1")

    def remove(self):
        """Processes that have just ended are members for a moment more."""
        wait.until(self.is_removed, f"{self.path} to be empty")

    def is_removed(self):
        with contextlib.suppress(OSError):
            self.path.rmdir()
        return not self.path.exists()


def version_2():
    for path in MOUNTS:
        if (path / "cgroup.controllers").exists():
            return path
    raise Failure(f"cgroup v2 is mounted neither at {MOUNTS[0]} nor at {MOUNTS[1]}")
