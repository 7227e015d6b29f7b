"""A pod: a network namespace, a cgroup, a program that answers, one that calls, and perhaps a sidecar."""

import sys

from kube.worlds import Prober
from testkit import wait
from testkit.namespaces import Namespace, link

from . import places
from .sidecar import Sidecar

START_SECONDS = 30


class Pod:
    def __init__(self, world, place):
        self.world, self.place = world, place
        self.cgroup = world.cgroup.child(place.name)
        self.namespace = None
        # One cgroup for each container, as kubelets do.
        self.app_cgroup = self.cgroup.child("app")
        self.sidecar = Sidecar(self) if place.is_meshed else None
        self.app = self.caller = None

    def build(self):
        self.namespace = Namespace(f"{self.world.kind}-{self.place.name}")
        node, name = self.world.node, self.place.name
        link(node, name, self.namespace, "eth0")
        self.namespace.ip(f"addr add {self.place.address}/32 dev eth0")
        node.ip(f"addr add {places.GATEWAY}/32 dev {name}")
        self.namespace.ip(f"route add default via {places.GATEWAY} dev eth0 onlink")
        node.ip(f"route add {self.place.address} dev {name}")

    def around(self, command, user=places.APP_ID, cgroup=None):
        """The command, in the namespace and in a container's cgroup, by this user."""
        by_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]
        return self.namespace.around((cgroup or self.app_cgroup).around(by_user))

    def start(self):
        world, name = self.world, self.place.name
        if self.sidecar is not None:
            self.sidecar.start()
        served = {"http": (places.HTTP_PORT, places.EXCLUDED_PORT),
                  "tcp": (places.TCP_PORT, places.DIRECT_PORT, places.GUARDED_PORT),
                  "udp": (places.UDP_PORT,), "local": (places.LOCAL_PORT,)}
        words = [f"{kind}={','.join(map(str, ports))}" for kind, ports in served.items()]
        self.app = world.start_process(f"{name}-app", self.around(
            [sys.executable, world.programs / "app.py", name, *words]))
        self.caller = Prober(f"{world.kind}/{name}", self.around([sys.executable, world.programs / "caller.py"]),
                             world.env)

    def await_ready(self):
        wait.until(lambda: "ready" in self.app.output(), f"the program of {self.place.name} to listen", START_SECONDS,
                   self.app.must_run)
        self.caller.answer()
        if self.sidecar is not None:
            self.sidecar.await_ready()

    def stop(self):
        """Ends all programs of the pod."""
        if self.caller is not None:
            self.caller.stop()
        self.cgroup.kill()

    def remove(self):
        if self.namespace is not None:
            self.namespace.remove()
        self.cgroup.remove()
