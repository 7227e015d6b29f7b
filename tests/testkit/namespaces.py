"""Network namespaces, of which none has a route to the outside."""

import ctypes
import os
import subprocess
import threading
from pathlib import Path

from testkit import names
from testkit.commands import ENV, run
from testkit.failure import Failure

CLONE_NEWNET = 0x40000000
RUN_NETNS = Path("/run/netns")


class Namespace:
    """A named namespace with its loopback up."""

    def __init__(self, name):
        self.name = names.of_this_run(name)
        self.path = RUN_NETNS / self.name
        run("ip", "netns", "add", self.name)
        self.ip("link set lo up")

    def ip(self, words):
        return run("ip", "-n", self.name, *words.split())

    def sysctl(self, name, value):
        """Of this namespace alone: /proc/sys/net shows the namespace of whoever looks."""
        self.call(lambda: Path("/proc/sys/net", name).write_text(str(value)))

    def around(self, command):
        """The command, so that it runs inside. `ip netns exec` would hide cgroups and file systems from it."""
        return ["nsenter", f"--net={self.path}", *map(str, command)]

    def call(self, function):
        """What the function returns on a thread inside; sockets that it makes stay in the namespace."""
        outcome = []

        def inside():
            try:
                enter(self.path)
                outcome.append((function(), None))
            except Exception as error:  # noqa: BLE001 - it is raised again for the caller
                outcome.append((None, error))

        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    def remove(self):
        remove(self.name)


def remove(name):
    subprocess.run(["ip", "netns", "delete", name], env=ENV, capture_output=True)


def enter(path):
    """Moves the calling thread into a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path) as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise Failure(f"{path} cannot be entered: {os.strerror(ctypes.get_errno())}; these tests need root")


def link(one, name_in_one, other, name_in_other):
    """A cable between two namespaces."""
    run("ip", "link", "add", name_in_one, "netns", one.name, "type", "veth",
        "peer", "name", name_in_other, "netns", other.name)
    one.ip(f"link set {name_in_one} up")
    other.ip(f"link set {name_in_other} up")
