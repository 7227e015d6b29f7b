"""Network namespaces, of which none has a route to the outside."""

import ctypes
import os
import subprocess
from pathlib import Path

from commands import run
from support.failure import Failure

CLONE_NEWNET = 0x40000000
RUN_NETNS = Path("/run/netns")
PREFIX = "sscap"


class Namespace:
    """A named namespace with its loopback up."""

    def __init__(self, name):
        self.name = f"{PREFIX}{os.getpid()}-{name}"
        self.path = RUN_NETNS / self.name
        run("ip", "netns", "add", self.name)
        self.ip("link set lo up")

    def ip(self, words):
        run("ip", "-n", self.name, *words.split())

    def around(self, command):
        """The command, so that it runs inside. `ip netns exec` would hide cgroups and file systems from it."""
        return ["nsenter", f"--net={self.path}", *(str(word) for word in command)]

    def remove(self):
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True)


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
