"""What balances Services and redirects connections to sidecars: rules, or Sidestep."""

import json
import subprocess

from kube import addresses as at
from testkit.bpffs import BpfFileSystem
from testkit.commands import run
from testkit.paths import TARGET

from .places import EXCLUDED_INBOUND, INBOUND_PORT, NAMESPACE, OUTBOUND_PORT, PROXY_ID

PROGRAM = TARGET / "release" / "sidestep"
VERSIONS = {"Service": "v1", "EndpointSlice": "discovery.k8s.io/v1"}
# Time limit until a pod is captured.
VALIDATION = "20s"
# The arguments of the injected init container with DNS capture, and one more port that bypasses the sidecar.
FLAGS = ["-p", OUTBOUND_PORT, "-z", INBOUND_PORT, "-u", PROXY_ID, "-g", PROXY_ID, "-m", "REDIRECT", "-i", "*", "-x", "",
         "-b", "*", "-d", ",".join(map(str, EXCLUDED_INBOUND)), "--redirect-dns", "--capture-all-dns"]


class Way:
    """What balances and redirects in one world."""

    name: str
    needs_sidestep = False

    def __init__(self, world):
        self.world = world

    def start(self):
        """Runs before there is any program in a pod."""
        raise NotImplementedError

    def capture(self, pod):
        """Runs before there is any program in this pod."""
        raise NotImplementedError

    def validate(self, pod):
        """The result of Istio's own check, which connects and listens in place of a sidecar: none may run yet."""
        command = [self.world.programs / "pilot-agent", "istio-iptables", *FLAGS, "--skip-rule-apply",
                   "--run-validation", "--probe-timeout", VALIDATION]
        done = subprocess.run(pod.around(command, PROXY_ID), env=self.world.env, capture_output=True, text=True)
        return done.returncode == 0 and "Validation passed" in done.stdout + done.stderr

    def stop(self):
        """Runs when no program runs any more."""


class Rules(Way):
    """kube-proxy on the node and istio-iptables in the pods."""

    name = "iptables"

    def start(self):
        world = self.world
        program = world.control_plane.binaries / "kube-proxy"
        world.start_process("kube-proxy", world.node.around([
            program, f"--proxy-mode={world.mode}", f"--kubeconfig={world.control_plane.kubeconfig}",
            f"--hostname-override={at.NODE_NAME}", f"--cluster-cidr={at.POD_NETWORKS[0]}",
            # These are settings of the host, which the tests must not change.
            "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0"]))

    def capture(self, pod):
        """Runs istio-iptables as a privileged init container does."""
        run(*pod.namespace.around([self.world.programs / "pilot-agent", "istio-iptables", *FLAGS]), env=self.world.env)


class Sidestep(Way):
    """The agent on the node, which reads the mesh from a directory: Services and slices of the API server, and a
    document of kind Capture for each pod."""

    name = "sidestep"
    needs_sidestep = True

    def __init__(self, world):
        super().__init__(world)
        self.bpffs = BpfFileSystem(world.directory / "bpf")
        self.documents = world.directory / "documents"
        self.options = ["--pins", self.bpffs.pins, "--socket", world.directory / "agent.sock"]

    def start(self):
        self.bpffs.mount()
        self.documents.mkdir()
        for kind, version in VERSIONS.items():
            for thing in self.world.control_plane.api.list(kind, NAMESPACE):
                self.write({**thing, "apiVersion": version, "kind": kind})
        for pod in self.world.meshed():
            document = run(*capture(pod), *FLAGS, "--print", env=self.world.env)
            self.write(json.loads(document))
        command = [PROGRAM, "agent", "--config", self.documents, "--node-name", at.NODE_NAME,
                   "--cgroup", self.world.cgroup.path, *self.options, "--metrics", "off"]
        self.world.start_process("agent", self.world.node.around(command))

    def write(self, document):
        """JSON is YAML."""
        name = f"{document['kind'].lower()}-{document['metadata']['name']}.yaml"
        (self.documents / name).write_text(json.dumps(document, indent=1))

    def capture(self, pod):
        """The agent captures the pod once it has read the document; the validation waits for that."""

    def stop(self):
        if self.bpffs.pins.exists():
            subprocess.run([PROGRAM, "agent", "--detach", *self.options], capture_output=True)
        self.bpffs.unmount()


class SidestepCapture(Rules):
    """kube-proxy on the node, and `sidestep capture` instead of istio-iptables."""

    name = "sidestep-capture"
    needs_sidestep = True

    def __init__(self, world):
        super().__init__(world)
        self.bpffs = BpfFileSystem(world.directory / "bpf")
        self.captured = []

    def start(self):
        self.bpffs.mount()
        super().start()

    def capture(self, pod):
        run(*capture(pod), *FLAGS, "--pins", self.bpffs.pins, env=self.world.env)
        self.captured.append(pod)

    def stop(self):
        for pod in self.captured:
            run(*capture(pod), "--remove", "--pins", self.bpffs.pins, env=self.world.env)
        self.bpffs.unmount()


WAYS = (Rules, Sidestep, SidestepCapture)


def capture(pod):
    return [PROGRAM, "capture", "--netns", pod.namespace.name, "--cgroup", pod.cgroup.path]
