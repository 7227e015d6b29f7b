"""One node with the pods of the mesh, each a network namespace and a cgroup, without a route to the outside."""

import os
import shutil
import sys

from kube import addresses as at
from kube import build
from kube.worlds import PEERS, Prober
from testkit import cgroups, paths
from testkit.namespaces import Namespace, link
from testkit.process import Process

from . import places
from .pod import Pod
from .wire import Wire

# First number of these nodes in the control plane's network: the other worlds have lower ones.
FIRST_NUMBER = 100


class World:
    def __init__(self, way, number, testbed, istiod):
        self.kind = f"mesh-{way.name}"
        self.control_plane, self.istiod, self.env = testbed.control_plane, istiod, testbed.env
        self.address = at.CONTROL.replace(".0.1", f".0.{FIRST_NUMBER + number}")
        self.directory = testbed.directory / self.kind
        # Of kube-proxy.
        self.mode = testbed.options.modes[0]
        self.programs = self.directory / "programs"
        self.way = way(self)
        self.node = None
        # A program on the node itself, as a kubelet is.
        self.caller = None
        self.pods = {}
        # By pod: the result of Istio's own check of its capture.
        self.validated = {}
        self.processes = []
        self.cgroup = cgroups.of_this_run(self.kind)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self.directory.mkdir()
        self.bring_programs()
        self.build_node()
        for place in places.PLACES.values():
            self.pods[place.name] = Pod(self, place)
            self.pods[place.name].build()
        self.wire = Wire(self.node)
        self.way.start()
        for pod in self.meshed():
            self.way.capture(pod)
            self.validated[pod.place.name] = self.way.validate(pod)
        for pod in self.pods.values():
            pod.start()
        for pod in self.pods.values():
            pod.await_ready()
        self.caller = Prober(f"{self.kind}/node", self.node.around([sys.executable, self.programs / "caller.py"]),
                             self.env)
        self.caller.answer()

    def address_of(self, place):
        return place.address

    def meshed(self):
        return [pod for pod in self.pods.values() if pod.place.is_meshed]

    def bring_programs(self):
        """Copies the programs to a directory that all users can read."""
        self.programs.mkdir()
        wanted = (build.BINARIES / "pilot-agent", build.ISTIO.bootstrap, paths.envoy(), PEERS / "app.py",
                  PEERS / "caller.py")
        for file in wanted:
            shutil.copy(file, self.programs)
        for directory in (self.directory.parent, self.directory, self.programs):
            os.chmod(directory, 0o755)

    def build_node(self):
        self.node = Namespace(f"{self.kind}-node")
        self.node.sysctl("ipv4/ip_forward", 1)
        self.node.sysctl("ipv4/icmp_ratelimit", 0)
        plane = self.control_plane.namespace
        name = self.kind[-12:]
        link(self.node, "control", plane, name)
        plane.ip(f"link set {name} master br0")
        self.node.ip(f"addr add {self.address}/{at.CONTROL_LENGTH} dev control")
        self.node.ip(f"addr add {places.NODE}/32 dev lo")
        # A packet needs a route before a rule can refuse it.
        self.node.ip(f"route add {at.SERVICE_NETWORKS[0]} dev control")
        plane.ip(f"route replace {at.POD_NETWORKS[0]} via {self.address}")

    def start_process(self, role, command, **options):
        process = Process(f"{self.kind}-{role}", command, self.directory / f"{role}.log",
                          options.pop("env", self.env), **options)
        self.processes.append(process)
        return process

    def must_run(self):
        for process in self.processes:
            process.must_run()

    def stop(self):
        if self.caller is not None:
            self.caller.stop()
        for pod in self.pods.values():
            pod.stop()
        for process in reversed(self.processes):
            process.destroy()
        self.way.stop()
        for pod in self.pods.values():
            pod.remove()
        if self.node is not None:
            self.node.remove()
        self.cgroup.remove()
