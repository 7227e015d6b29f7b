"""Sidestep: traffic is led at the socket. Its programs are pinned in a BPF file system of the measurement's own."""

import json
import subprocess

from ...errors import LabError
from ...netns import MORTAL, inside, must
from ..settings import CAPTURE, PORTS, VIP
from .base import Contestant

PROGRAM, AGENT = "sidestep", "sidestep-agent"
#: The agent makes this in one step when all tables are filled and all programs attached.
ATTACHED = "services/links"
LIMIT = 20


def lacks(places, *commands):
    """Why the program cannot be used for these commands."""
    path = places.release / PROGRAM
    if not path.exists():
        return f"{path} does not exist; run: cargo build --release"
    for command in commands:
        asked = subprocess.run([path, command, "--help"], capture_output=True, timeout=LIMIT, check=False)
        if asked.returncode:
            return f"this {PROGRAM} has no command '{command}'"
    return None


class Capture(Contestant):
    name, title = "capture", "Sidestep capture"
    main = True

    def __init__(self, mesh):
        super().__init__(mesh)
        self._bpffs = mesh.folder / "bpf"
        # One for the node: pods share tables and programs there.
        self._pins = self._bpffs / PROGRAM
        self._led = []

    @classmethod
    def missing(cls, places):
        return lacks(places, "capture")

    def steer(self):
        self._mount()
        for place in self.places_of_pods:
            self._capture(place, "--cgroup", str(place.cgroup), *CAPTURE.options())
            self._led.append(place)

    def _mount(self):
        self._bpffs.mkdir()
        must(["mount", "-t", "bpf", "bpf", str(self._bpffs)])

    def close(self):
        try:
            for place in self._led:
                self._capture(place, "--remove")
        finally:
            if self._bpffs.is_mount():
                must(["umount", "--lazy", str(self._bpffs)])

    def _capture(self, place, *words):
        pins = str(self._pins)
        command = [self.places.built(PROGRAM), "capture", "--netns", place.namespace, "--pins", pins]
        return must([*command, *words])


class Splice(Capture):
    """What a pod's program and its sidecar say to each other goes from queue to queue in the kernel.

    By port, and once for each pod: between the pods TCP stays, as between nodes, although these two share a kernel.
    """

    name, title = "capture+splice", "Sidestep capture + splice"
    main = False

    def __init__(self, mesh):
        super().__init__(mesh)
        self._spliced = {}

    @classmethod
    def missing(cls, places):
        return lacks(places, "capture", "splice")

    def steer(self):
        super().steer()
        # The load generator's sockets are made blocking, though it never waits in a call but connect().
        self._splice(self.node.client, [CAPTURE.outbound], "--blocking")
        self._splice(self.node.server, PORTS)

    def _splice(self, place, ports, *more):
        pins = self._bpffs / f"{PROGRAM}-{place.role}"
        words = ["--port", ",".join(map(str, ports)), "--cgroup", str(place.cgroup), *more]
        must([self.places.built(PROGRAM), "splice", "--pins", str(pins), *words])
        self._spliced[place.role] = pins

    def moved(self):
        return {f"spliced, {role}'s pod": self._bytes(pins) for role, pins in self._spliced.items()}

    def _bytes(self, pins):
        said = must([self.places.built(PROGRAM), "splice", "status", "--json", "--pins", str(pins)])
        return json.loads(said)["bytes"]

    def close(self):
        try:
            for pins in self._spliced.values():
                must([self.places.built(PROGRAM), "splice", "--remove", "--pins", str(pins)])
        finally:
            super().close()


class Services(Capture):
    """An agent captures the pods and balances Services at the socket: the node has no kube-proxy and none of its rules."""

    name, title = "capture+services", "Sidestep capture + Services"
    main = kube_proxy = False
    #: Of the Service.
    annotations = ""

    @classmethod
    def missing(cls, places):
        path = places.release / AGENT
        if not path.exists():
            return f"{path} does not exist; run: cargo build --release -p {AGENT}"
        return lacks(places, "agent", "capture")

    def steer(self):
        self._mount()
        directory = self.mesh.folder / "objects"
        directory.mkdir()
        (directory / "service.yaml").write_text(self._service(), encoding="ascii")
        for place in self.places_of_pods:
            words = ["--cgroup", str(place.cgroup), *CAPTURE.options(), "--print"]
            text = self._capture(place, *words)
            (directory / f"{place.role}.yaml").write_text(text, encoding="utf-8")
        self._start(directory)

    def _service(self):
        ports = [{"name": f"p{port}", "port": port} for port in PORTS]
        annotations = f"  annotations: {{{self.annotations}}}\n" if self.annotations else ""
        return SERVICE.format(
            annotations=annotations, vip=VIP, address=self.node.server.address, ports=json.dumps(ports)
        )

    def _start(self, directory):
        options = {
            "--config": directory,
            "--cgroup": self.node.cgroup,
            "--pins": self._pins,
            "--metrics": "off",
            "--socket": self.mesh.folder / "agent.sock",
            "--node-name": "node",
        }
        words = [str(word) for option in options.items() for word in option]
        argv = inside(self.node.namespace, [self.places.built(AGENT), *words])
        self._agent = self.lab.start(f"{self.node.name}-agent", [*MORTAL, *argv], None)
        self.lab.wait_ready(self._agent, self._is_ready)

    def _is_ready(self):
        """All pods are captured, and Services balanced: it says so itself."""
        if not (self._pins / ATTACHED).exists():
            return False
        listed = self._capture_list()
        return len(listed) == len(self.places_of_pods) and all(each["captured"] for each in listed)

    def _capture_list(self):
        socket = str(self.mesh.folder / "agent.sock")
        words = ["--json", "--socket", socket, "--pins", str(self._pins)]
        try:
            return json.loads(must([self.places.built(PROGRAM), "capture", "list", *words]))["captures"]
        except (LabError, ValueError) as why:
            raise OSError(str(why)) from why


class Bypass(Services):
    """The Service asks for the short way: neither sidecar sees its connections."""

    name, title = "bypass", "Sidestep bypass"
    main, led = True, False
    annotations = 'sidestep.dev/bypass-proxy: "true"'


SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: mesh
  namespace: bench
{annotations}\
spec:
  clusterIP: {vip}
  ports: {ports}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: mesh-1
  namespace: bench
  labels: {{kubernetes.io/service-name: mesh}}
addressType: IPv4
ports: {ports}
endpoints:
- addresses: [{address}]
"""
