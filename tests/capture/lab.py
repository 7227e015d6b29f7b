"""Both worlds, and what they share; nothing of them is left afterwards."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import cgroups
import leftovers
import sidestep
from commands import ENV, run
from report import say
from sidestep import Sidestep
from support.failure import Failure
from twin import Twin

PROGRAMS = ("ip", "nsenter", "setpriv", "bpftool", "clang", "iptables-legacy-restore")
UMASK = 0o022


class Lab:
    """`ours` and `twin`: the worlds. `slow`: whether the big numbers are wanted."""

    def __init__(self, slow, keep):
        self.slow = slow
        self.keep = keep
        self.stack = contextlib.ExitStack()
        self.env = ENV

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stack.close()
            raise
        return self

    def start(self):
        for name in PROGRAMS:
            if shutil.which(name, path=ENV["PATH"]) is None:
                raise Failure(f"{name} is not installed: run tools/install-deps test")
        sidestep.must_be_built()
        leftovers.sweep()
        os.umask(UMASK)
        self.directory = Path(tempfile.mkdtemp(prefix=f"{cgroups.PREFIX}{os.getpid()}-"))
        self.directory.chmod(0o755)
        self.stack.callback(self.remove_directory)
        self.cgroup = cgroups.of_this_run()
        self.stack.callback(self.cgroup.remove)
        self.bpffs = self.mount_bpffs("bpf")
        self.twin = self.start_world(Twin(self))
        self.ours = self.start_world(Sidestep(self))

    def start_world(self, world):
        self.stack.callback(world.stop)
        world.start()
        say(f"world {world.name} runs")
        return world

    def mount_bpffs(self, name):
        """What is pinned there goes with it."""
        path = self.directory / name
        path.mkdir()
        run("mount", "-t", "bpf", "bpf", path)
        self.stack.callback(subprocess.run, ["umount", "--lazy", path], capture_output=True)
        return path

    def compare(self, function):
        """What the function finds in our world; it must be what it finds in the other."""
        ours, twin = function(self.ours), function(self.twin)
        if ours != twin:
            raise Failure(f"with Sidestep: {ours}; with iptables: {twin}")
        return ours

    def remove_directory(self):
        if self.keep:
            say(f"logs are in {self.directory}")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __exit__(self, *_):
        self.stack.close()
