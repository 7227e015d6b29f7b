"""A machine for a kubelet: namespaces of its own of every kind, a root that is a copy of ours, and cgroups of its own.

What runs there finds all paths as on a real machine, and changes nothing outside. It ends with its first process.
"""

import os
import signal
from pathlib import Path

from testkit import cgroups, names, procfs, wait
from testkit.cgroups import is_removed
from testkit.commands import ENV, run
from testkit.namespaces import Namespace
from testkit.process import Process

HERE = Path(__file__).resolve().parent
OWN_NAMESPACES = ("mount", "uts", "ipc", "cgroup", "pid")
READY_SECONDS = 30


class Machine:
    """`pause`: the program that is its first process."""

    def __init__(self, name, directory, pause):
        self.name = name
        self.directory = directory
        self.pause = pause
        self.state = directory / "state"
        self.process, self.first, self.cgroups, self.namespace = None, None, [], None

    def start(self):
        self.state.mkdir(parents=True, exist_ok=True)
        self.namespace = Namespace(self.name)
        self.cgroups = make_cgroups(names.of_this_run(self.name))
        new = [f"--{kind}" for kind in OWN_NAMESPACES]
        command = ["unshare", *new, "--fork", "--kill-child", "--propagation", "private",
                   HERE / "machine.sh", self.directory, self.name, self.pause]
        self.process = Process(self.name, self.in_cgroups(self.namespace.around(command)), self.directory / "machine.log", ENV)
        self.first = wait.until(self.find_first, f"{self.name} to be set up", READY_SECONDS, self.process.must_run)

    def find_first(self):
        """Its first process, once everything is mounted."""
        return next((pid for pid in procfs.children(self.process.pid) if procfs.exe_name(pid) == "pause"), None)

    def in_cgroups(self, command):
        enter = "".join(f"echo $$ >{path}/cgroup.procs; " for path in self.cgroups)
        return ["sh", "-ec", f'{enter}exec "$@"', "sh", *map(str, command)]

    def around(self, command):
        """The command, so that it runs on the machine."""
        kinds = [f"--{kind}" for kind in (*OWN_NAMESPACES, "net")]
        return self.in_cgroups(["nsenter", "--target", str(self.first), *kinds, "--", *map(str, command)])

    def run(self, *words, seconds=60):
        return run(*self.around(words), seconds=seconds)

    def path(self, path):
        """The file that the machine knows by this absolute path. Its own links are not followed right: name real paths."""
        return Path(f"/proc/{self.first}/root{path}")

    def crash(self):
        """As without power: its disk stays (`disk` in machine.sh), all else is gone. `start` is what comes then."""
        self.remove()
        self.process, self.first, self.cgroups, self.namespace = None, None, [], None

    def remove(self):
        """The kernel ends everything on it along with its first process."""
        if self.process is not None:
            first = self.first or next(iter(procfs.children(self.process.pid)), None)
            if first is not None:
                os.kill(first, signal.SIGKILL)
            self.process.destroy()
        for path in self.cgroups:
            wait.until(lambda path=path: is_removed(path), f"{path} to be empty", READY_SECONDS)
        if self.namespace is not None:
            self.namespace.remove()


def make_cgroups(name):
    """One in each hierarchy, below our own place in it."""
    made = []
    for controllers, own in cgroups.own_places():
        path = own / name
        path.mkdir()
        made.append(path)
        # Of version 1: without these nothing may run there.
        for file in ("cpuset.cpus", "cpuset.mems") if controllers == "cpuset" else ():
            (path / file).write_text((own / file).read_text())
    return made
