"""A node with pods, made of network namespaces on one bridge, and nothing that leads outside.

    node namespace     bridge 10.244.0.1/16
       |     |    |
    client  pod  pod   10.244.0.2, .11, .12, ...

As on a node of Kubernetes bridged packets pass the node's rules (bridge-nf-call-iptables), pods reach everything else by
way of the node, and the client has a cgroup of its own.
"""

import contextlib
import os

from .. import netns
from ..netns import QUIET, cgroup_root, inside, must, undisturbed
from . import workload

PREFIX = "stb"
#: Of the node. The rest of what Kubernetes sets concerns other traffic.
NODE_SETTINGS = (
    "net.ipv4.ip_forward=1",
    "net.ipv4.conf.all.send_redirects=0",
    "net.ipv4.conf.default.send_redirects=0",
)
BRIDGE_SETTING = "net.bridge.bridge-nf-call-iptables=1"


class Cluster:
    def __init__(self, label, pods):
        self.name = f"{PREFIX}{os.getpid()}-{label}"
        self.node, self.client = f"{self.name}-node", f"{self.name}-client"
        self.pods = {address: f"{self.name}-p{number}" for number, address in enumerate(pods)}
        self.cgroup = cgroup_root() / self.name

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with undisturbed():
            with contextlib.suppress(OSError):
                self.cgroup.rmdir()
            for name in (self.client, *self.pods.values(), self.node):
                netns.delete(name)

    def _make(self):
        self.cgroup.mkdir()
        netns.add(self.node, (*QUIET, *NODE_SETTINGS))
        must(["ip", "-n", self.node, "link", "add", "br0", "type", "bridge"])
        must(["ip", "-n", self.node, "addr", "add", f"{workload.NODE}/{workload.POD_PREFIX}", "dev", "br0"])
        must(["ip", "-n", self.node, "link", "set", "br0", "up"])
        must(inside(self.node, ["sysctl", "-qw", BRIDGE_SETTING]))
        self._pod(self.client, str(workload.CLIENT), "client")
        for number, (address, name) in enumerate(self.pods.items()):
            self._pod(name, address, f"p{number}")

    def _pod(self, name, address, outside):
        netns.add(name, QUIET)
        peer = ["peer", "name", "eth0", "netns", name]
        must(["ip", "-n", self.node, "link", "add", outside, "type", "veth", *peer])
        must(["ip", "-n", self.node, "link", "set", outside, "master", "br0", "up"])
        steps = (
            f"addr add {address}/{workload.POD_PREFIX} dev eth0",
            "link set eth0 up",
            f"route add default via {workload.NODE}",
        )
        must(["ip", "-n", name, "-batch", "-"], "\n".join(steps) + "\n")

    def join(self):
        """What a child does before it becomes the client."""
        netns.join(self.cgroup)


def remove_leftovers():
    netns.remove_leftovers(PREFIX)
