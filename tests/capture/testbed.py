"""Both worlds, and what they share; nothing of them is left afterwards."""

import os

from capture import sidestep
from capture.iptables import Iptables
from capture.sidestep import Sidestep
from testkit import cgroups, testbed
from testkit.bpffs import BpfFileSystem
from testkit.console import say
from testkit.failure import Failure

PROGRAMS = ("ip", "nsenter", "setpriv", "bpftool", "clang", "iptables-legacy-restore")
UMASK = 0o022


class Testbed(testbed.Testbed):
    """`ours` and `twin`: the worlds. `slow`: whether the big numbers are wanted."""

    def __init__(self, slow, keep):
        super().__init__(PROGRAMS, "test", keep)
        self.slow = slow

    def start(self):
        sidestep.must_be_built()
        super().start()
        os.umask(UMASK)
        self.directory.chmod(0o755)
        self.cgroup = cgroups.of_this_run("pods")
        self.stack.callback(self.cgroup.remove)
        self.bpffs = self.mount_bpffs("bpf")
        self.twin = self.start_world(Iptables(self))
        self.ours = self.start_world(Sidestep(self))

    def start_world(self, world):
        self.stack.callback(world.stop)
        world.start()
        say(f"world {world.name} runs")
        return world

    def mount_bpffs(self, name):
        """It goes with the testbed."""
        bpffs = BpfFileSystem(self.directory / name)
        bpffs.mount()
        self.stack.callback(bpffs.unmount)
        return bpffs

    def compare(self, function):
        """What the function finds in our world; it must be what it finds in the other."""
        ours, twin = function(self.ours), function(self.twin)
        if ours != twin:
            raise Failure(f"with Sidestep: {ours}; with iptables: {twin}")
        return ours
