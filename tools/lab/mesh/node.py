"""A node with two pods, made of network namespaces, and nothing that leads outside.

                node namespace: routes, ip_forward
                   |                      |
    client 10.244.1.2 eth0         server 10.244.2.2 eth0

No bridge: each pod has a route to the node, and the node one to each pod, as where a network plugin routes. Packets
between pods pass the node's PREROUTING, FORWARD and POSTROUTING. In its pod's cgroup each program has one of its own, as
containers have.
"""

import os

from .. import netns
from ..netns import QUIET, cgroup_root, must, undisturbed

PREFIX = "smesh"
#: Link-local, the same in each pod.
GATEWAY = "169.254.1.1"
NODE_SETTINGS = (
    "net.ipv4.ip_forward=1",
    "net.ipv4.conf.all.send_redirects=0",
    "net.ipv4.conf.default.send_redirects=0",
)


class Place:
    """A pod's network namespace and cgroup."""

    def __init__(self, node, role, address):
        self.role, self.address = role, address
        self.namespace = f"{node.name}-{role}"
        self.cgroup = node.cgroup / role

    def cgroup_of(self, program):
        folder = self.cgroup / program
        folder.mkdir(exist_ok=True)
        return folder


class Node:
    def __init__(self, label):
        self.name = f"{PREFIX}{os.getpid()}-{label}"
        self.namespace = f"{self.name}-node"
        self.cgroup = cgroup_root() / self.name
        self.client = Place(self, "client", "10.244.1.2")
        self.server = Place(self, "server", "10.244.2.2")

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with undisturbed():
            netns.remove_cgroup(self.cgroup)
            for name in (self.client.namespace, self.server.namespace, self.namespace):
                netns.delete(name)

    def _make(self):
        self.cgroup.mkdir()
        netns.add(self.namespace, (*QUIET, *NODE_SETTINGS))
        for place in (self.client, self.server):
            self._connect(place)

    def _connect(self, place):
        place.cgroup.mkdir()
        netns.add(place.namespace, QUIET)
        device = place.role
        peer = ["peer", "name", "eth0", "netns", place.namespace]
        must(["ip", "-n", self.namespace, "link", "add", device, "type", "veth", *peer])
        batch(
            self.namespace,
            f"addr add {GATEWAY}/32 dev {device}",
            f"link set {device} up",
            f"route add {place.address}/32 dev {device}",
        )
        batch(
            place.namespace,
            f"addr add {place.address}/32 dev eth0",
            "link set eth0 up",
            f"route add {GATEWAY}/32 dev eth0 scope link",
            f"route add default via {GATEWAY} dev eth0",
        )


def batch(namespace, *steps):
    must(["ip", "-n", namespace, "-batch", "-"], "\n".join(steps) + "\n")


def remove_leftovers():
    netns.remove_leftovers(PREFIX)
