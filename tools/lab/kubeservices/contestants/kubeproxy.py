"""kube-proxy itself, with an API server that tells it about the Services.

All of them are written before it starts, so that loading is what a node that comes up waits for. A change is a write to
the API server.
"""

import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from ...errors import LabError
from ...netns import MORTAL, NETNS, TooSlow, inside
from ...places import SEARCH
from .. import controlplane, workload
from .base import Contestant
from .objects import endpoint_slice, service

PROGRAMS = ("kube-proxy", "kube-apiserver", "kube-controller-manager")
#: kube-proxy writes rules once a second at most. A change is to find it idle, as one that comes by itself does.
IDLE_SECONDS = 1.5
POLL = 0.01
#: A Service that is there answers sooner.
PATIENCE = 0.05
#: These settings of the kernel are not the namespace's alone: they stay as they are.
KEEP = {
    "--conntrack-max-per-core": 0,
    "--conntrack-tcp-timeout-established": 0,
    "--conntrack-tcp-timeout-close-wait": 0,
}


class KubeProxy(Contestant):
    mode = ""
    #: Commands that it needs.
    of_the_system = ("etcd", "openssl", "nft")

    def __init__(self, *parts):
        super().__init__(*parts)
        self.proxy = self.plane = None

    @classmethod
    def missing(cls, places):
        try:
            for name in PROGRAMS:
                places.kubernetes(name)
        except LabError as why:
            return str(why)
        left = [name for name in cls.of_the_system if not shutil.which(name, path=SEARCH)]
        return f"{left[0]} is not installed; run: tools/install-deps kube" if left else None

    def fill(self):
        if self.load.size > self.plan.most_written:
            most = f"{self.plan.most_written:,}"
            raise LabError(f"no API server is given more than {most} Services, which takes it minutes")
        folder = self.lab.folder / f"{self.cluster.name}-plane"
        self.plane = controlplane.Plane(folder, self.places.kube, f"{self.mode}{self.load.size}")
        self.plane.start(self.cluster.node)
        things = [[service(each), endpoint_slice(each)] for each in self.load.services]
        self.plane.load(things, self.plan.write_limit)
        begin = time.monotonic()
        name = f"{self.cluster.name}-{self.name}"
        self.proxy = self.lab.start(name, [*MORTAL, *self.argv()], {"PATH": self.path()})
        self.wait_for(self.load.last, begin + self.plan.load_limit)
        return time.monotonic() - begin

    def argv(self):
        options = {
            "--proxy-mode": self.mode,
            "--kubeconfig": self.plane.kubeconfig,
            "--hostname-override": controlplane.NODE_NAME,
            "--cluster-cidr": workload.POD_RANGE,
            **KEEP,
        }
        words = [f"{option}={value}" for option, value in options.items()]
        return inside(self.cluster.node, [self.places.kubernetes("kube-proxy"), *words])

    def path(self):
        """Where it finds the commands that it writes rules with."""
        return SEARCH

    def wait_for(self, last, end):
        """All Services become effective at once, so one tells of all."""
        client = NETNS / self.cluster.client
        with ThreadPoolExecutor(1, initializer=controlplane.enter, initargs=(client,)) as thread:
            while not thread.submit(answers, last).result():
                if self.proxy.poll() is not None:
                    self.lab.fail(self.proxy, f"ended with {self.proxy.returncode}")
                if time.monotonic() > end:
                    limit = f"{self.plan.load_limit:.0f} s"
                    raise TooSlow(f"kube-proxy serves not all of {self.load.size:,} Services {limit} after its start")
                time.sleep(POLL)

    def prepare(self, old, new):
        time.sleep(IDLE_SECONDS)
        return endpoint_slice(new)

    def apply(self, prepared):
        self.plane.replace(prepared)

    def close(self):
        if self.proxy:
            self.lab.stop(self.proxy)
        if self.plane:
            self.plane.stop()


def answers(served):
    """Whether a connection from the calling thread's namespace arrives."""
    try:
        socket.create_connection((served.vip, workload.PORT), PATIENCE).close()
    except OSError:
        return False
    return True


class KubeProxyNftables(KubeProxy):
    name, title = "kube-proxy-nftables", "kube-proxy (nftables)"
    mode = "nftables"


class KubeProxyIptables(KubeProxy):
    """With the kernel's own tables of iptables, in which connections cost less than in those of nftables.

    It has rules in an order of its own: a Service's place among all Services is not its place in the list.
    """

    name, title = "kube-proxy-iptables", "kube-proxy (iptables)"
    mode = "iptables"
    of_the_system = ("etcd", "openssl", controlplane.LEGACY)

    def path(self):
        folder = self.lab.folder / f"{self.cluster.name}-legacy"
        folder.mkdir()
        for name in controlplane.LEGACY_COMMANDS:
            (folder / name).symlink_to(shutil.which(controlplane.LEGACY, path=SEARCH))
        return f"{folder}:{SEARCH}"
