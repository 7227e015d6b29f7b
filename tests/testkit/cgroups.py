"""Cgroups. Everybody who is not moved into one stays where they are, and knows nothing of what is attached to it."""

import contextlib
import os
from pathlib import Path

from testkit import names, wait
from testkit.failure import Failure

# Version 2: alone, or beside version 1.
MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


class Cgroup:
    """Is made at once, and gone after `remove`."""

    def __init__(self, path):
        self.path = path
        path.mkdir()

    def child(self, name):
        """One more, inside of this one."""
        return Cgroup(self.path / name)

    def around(self, command):
        """The command, so that it and its children are members from their first instruction on."""
        return ["sh", "-ec", f'echo $$ >{self.path}/cgroup.procs; exec "$@"', "sh", *map(str, command)]

    def enter(self):
        """Moves the calling process into it."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def is_empty(self):
        return not (self.path / "cgroup.procs").read_text()

    def kill(self):
        """All members, of those inside as well."""
        if self.path.exists():
            (self.path / "cgroup.kill").write_text("1")

    def remove(self):
        """With those inside. Processes that have just ended are members for a moment more."""
        wait.until(lambda: is_removed(self.path), f"{self.path} to be empty")


def is_removed(path):
    for directory in sorted(path.glob("**/"), reverse=True):
        with contextlib.suppress(OSError):
            directory.rmdir()
    return not path.exists()


def of_this_run(name, root=None):
    """A new one at the top of a hierarchy: of version 2, if no other root is given."""
    return Cgroup((root or version_2()) / names.of_this_run(name))


def own_places():
    """Where this process is: controllers and directory, for each hierarchy. Version 2 has no controllers in its name."""
    places = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        mounted = MOUNTS[0] / controllers.removeprefix("name=") if controllers else version_2()
        if not mounted.is_dir():
            raise Failure(f"{mounted} is not there: this machine mounts its cgroups elsewhere")
        places.append((controllers, mounted / own.lstrip("/")))
    return places


def version_2():
    for path in MOUNTS:
        if (path / "cgroup.controllers").exists():
            return path
    raise Failure(f"cgroup v2 is mounted neither at {MOUNTS[0]} nor at {MOUNTS[1]}")
