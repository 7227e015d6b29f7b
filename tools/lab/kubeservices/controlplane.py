"""The control plane of the tests with Kubernetes, and a node's way to it.

It is in a namespace of its own, which has no way outside either:

    node namespace     "api" 10.250.0.10/24
       |
    control plane      bridge 10.250.0.1: kube-apiserver, on etcd
"""

import contextlib
import os
import sys
import time

from ..errors import LabError
from ..netns import TooSlow, must
from ..places import ROOT, SEARCH
from . import workload

sys.path.append(str(ROOT / "tests"))

from kube import addresses  # noqa: E402
from kube.controlplane import BRIDGE, ControlPlane  # noqa: E402
from kube.kube_proxy import COMMANDS as LEGACY_COMMANDS  # noqa: E402, F401 - how kube-proxy gets iptables' own tables
from kube.kube_proxy import LEGACY  # noqa: E402, F401
from kube.objects import namespace  # noqa: E402
from testkit import leftovers  # noqa: E402
from testkit.failure import Failure  # noqa: E402
from testkit.namespaces import enter  # noqa: E402, F401 - contestants dial in a namespace

NODE_NAME = addresses.NODE_NAME
NODE_ADDRESS = addresses.CONTROL.replace(".0.1", ".0.10")
DEVICE = "api"


class Plane:
    """Everything that is written to it is the workload's."""

    def __init__(self, folder, binaries, name):
        folder.mkdir()
        environment = {**os.environ, "PATH": SEARCH}
        with told():
            leftovers.sweep()
            self._plane = ControlPlane(folder, binaries, environment, name)
        self.kubeconfig = self._plane.kubeconfig

    def start(self, node):
        """The API server answers when this returns, the node too."""
        with told():
            self._plane.start()
        plane = self._plane.namespace.name
        peer = ["peer", "name", "node", "netns", plane]
        must(["ip", "-n", node, "link", "add", DEVICE, "type", "veth", *peer])
        must(["ip", "-n", plane, "link", "set", "node", "master", BRIDGE, "up"])
        must(["ip", "-n", node, "addr", "add", f"{NODE_ADDRESS}/{addresses.CONTROL_LENGTH}", "dev", DEVICE])
        must(["ip", "-n", node, "link", "set", DEVICE, "up"])

    def load(self, groups, limit):
        """All things, by several connections at a time; those of a group one after another."""
        end = time.monotonic() + limit

        def create(group):
            if time.monotonic() > end:
                raise TooSlow(f"the API server has not taken {len(groups):,} Services after {limit:.0f} s")
            for thing in group:
                self._plane.api.create(thing)

        with told():
            self._plane.api.create(namespace(workload.NAMESPACE))
            self._plane.api.each(create, groups)

    def replace(self, thing):
        with told():
            self._plane.api.replace(thing)

    def stop(self):
        self._plane.stop()


@contextlib.contextmanager
def told():
    """What goes wrong there is told as everything else is."""
    try:
        yield
    except (Failure, OSError) as why:
        raise LabError(f"control plane: {why}") from why
