"""A control plane and the worlds that are compared; everything is removed afterwards."""

from kube import build
from kube.agent import Agent
from kube.controlplane import ControlPlane
from kube.differences import SIDESTEP
from kube.kube_proxy import KubeProxy
from testkit import testbed
from testkit.console import say

PROGRAMS = ("etcd", "iptables", "ip6tables", "ip", "nft", "nsenter", "openssl", "setpriv", "unshare")


class Testbed(testbed.Testbed):
    def __init__(self, options):
        super().__init__(PROGRAMS, "kube", options.keep)
        self.options = options
        self.worlds = []

    def start(self):
        super().start()
        self.control_plane = ControlPlane(self.directory, build.BINARIES, self.env)
        if self.options.parts == ["scale"]:
            # What they read and write would count as the agent's.
            self.control_plane.controllers = ()
        self.stack.callback(self.control_plane.stop)
        self.control_plane.start()
        say("testbed: the control plane runs")
        for number, (kind, make) in enumerate(self.kinds(), 1):
            world = make(kind, number, self.control_plane, self.env)
            self.stack.callback(world.stop)
            world.start()
            self.worlds.append(world)
            say(f"testbed: world {kind} runs")

    def kinds(self):
        """None if only the mesh is tested, which has its own worlds; without kube-proxy for scale."""
        if self.options.parts == ["mesh"]:
            return []
        if self.options.parts == ["scale"]:
            return [(SIDESTEP, Agent)]
        twins = [(mode, KubeProxy) for mode in self.options.modes]
        return twins if self.options.world == "twins" else [*twins, (SIDESTEP, Agent)]
