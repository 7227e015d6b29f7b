"""A node of the cluster: a machine with containerd, runc and a kubelet, where each file is in its usual place."""

import contextlib
import json
import shutil

from cluster import build
from cluster.machine import Machine
from testkit import wait
from testkit.commands import ENV
from testkit.failure import Failure
from testkit.namespaces import link
from testkit.process import Process

SOCKET = "/run/containerd/containerd.sock"
CNI_PROGRAMS = tuple(f"/usr/lib/cni/{name}" for name in ("ptp", "host-local", "loopback"))
BRIDGE = "br0"
READY_SECONDS, IMPORT_SECONDS = 180, 180

CONTAINERD = """\
version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/opt/cni/bin"]
  conf_dir = "/etc/cni/net.d"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "{runc}"
"""

KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
    # The machine below may have cgroups of version 1 for what version 2 does not have there.
    "failCgroupV1": False, "cgroupDriver": "cgroupfs", "containerRuntimeEndpoint": f"unix://{SOCKET}",
    # Nobody else reaches it.
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}}, "authorization": {"mode": "AlwaysAllow"},
    "enforceNodeAllocatable": [], "failSwapOn": False, "resolvConf": "", "maxPods": 200,
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    "imageGCHighThresholdPercent": 100, "registryPullQPS": 0, "eventRecordQPS": 0,
}


class Kubelet:
    """`number`: of the node; it gives its name and its addresses."""

    def __init__(self, plane, number, directory, pause, images):
        self.plane = plane
        self.name = f"n{number}"
        self.address = f"10.250.0.{10 + number}"
        self.pods = f"10.244.{number}.0/24"
        self.directory = directory / self.name
        self.images = images
        self.machine = Machine(self.name, self.directory, pause)
        self.containerd, self.kubelet = None, None

    def start(self):
        self.directory.mkdir()
        self.machine.start()
        self.connect()
        self.configure()
        self.start_containerd()
        for archive in self.images.values():
            self.bring(archive)
        self.start_kubelet()

    def bring(self, archive):
        """An image into the runtime's store."""
        copy = self.machine.state / archive.name
        shutil.copy(archive, copy)
        self.machine.run(build.BINARIES / "ctr", "--namespace", "k8s.io", "images", "import", copy, seconds=IMPORT_SECONDS)
        copy.unlink()

    def reboot(self, others):
        """The machine loses its power and starts again, as it was configured."""
        self.machine.crash()
        for process in (self.kubelet, self.containerd):
            process.destroy()
        self.disconnect()
        self.machine.start()
        self.connect()
        for other in others:
            self.reach(other)
        self.start_containerd()
        self.start_kubelet()

    def disconnect(self):
        """The kernel removes a cable some time after the machine at its end."""
        with contextlib.suppress(Failure):
            self.plane.namespace.ip(f"link delete {self.name}")
        wait.until(lambda: f"{self.name}@" not in self.plane.namespace.ip("link show"), f"the cable of {self.name} to be gone")

    def connect(self):
        """To the control plane; from there to other nodes."""
        plane = self.plane.namespace
        link(plane, self.name, self.machine.namespace, "eth0")
        plane.ip(f"link set {self.name} master {BRIDGE}")
        plane.ip(f"route replace {self.pods} via {self.address}")
        self.machine.namespace.ip(f"addr add {self.address}/24 dev eth0")

    def reach(self, other):
        """The pods of another node."""
        self.machine.namespace.ip(f"route add {other.pods} via {other.address}")

    def configure(self):
        state = self.machine.state
        (state / "containerd.toml").write_text(CONTAINERD.format(pause="sidestep.test/pause:1", runc=build.BINARIES / "runc"))
        (state / "crictl.yaml").write_text("")
        (state / "kubelet.json").write_text(json.dumps(KUBELET))
        shutil.copy(self.plane.kubeconfig, state / "kubeconfig")
        for place in ("/opt/cni/bin", "/etc/cni/net.d"):
            self.machine.path(place).mkdir(parents=True)
        for file in CNI_PROGRAMS:
            shutil.copy(file, self.machine.path("/opt/cni/bin"))
        self.network_file().write_text(json.dumps({"cniVersion": "1.0.0", "name": "test", "plugins": [{
            "type": "ptp", "ipMasq": False,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": self.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}))

    def network_file(self):
        return self.machine.path("/etc/cni/net.d") / "10-test.conflist"

    def start_process(self, role, command):
        env = {**ENV, "PATH": f"{build.BINARIES}:{ENV['PATH']}"}
        return Process(role, self.machine.around(["nice", "-n", "5", *command]), self.directory / f"{role}.log", env)

    def start_containerd(self):
        self.containerd = self.start_process("containerd", [build.BINARIES / "containerd",
                                                            "--config", self.machine.state / "containerd.toml"])
        wait.until(self.is_served, "containerd to answer", READY_SECONDS, self.containerd.must_run)

    def is_served(self):
        try:
            return self.crictl("version")
        except Failure:
            return False

    def start_kubelet(self):
        state = self.machine.state
        self.kubelet = self.start_process("kubelet", [
            build.BINARIES / "kubelet", f"--config={state / 'kubelet.json'}", f"--kubeconfig={state / 'kubeconfig'}",
            f"--hostname-override={self.name}", f"--node-ip={self.address}"])

    def wait_ready(self):
        wait.until(self.is_ready, f"{self.name} to be ready", READY_SECONDS, self.kubelet.must_run)

    def is_ready(self):
        return says_ready(self.plane.api.get({"kind": "Node", "metadata": {"name": self.name}}) or {})

    def restart_with(self, **settings):
        """The kubelet with other settings, which pods have that are made afterwards."""
        file = self.machine.state / "kubelet.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | settings))
        self.kill(self.kubelet)
        self.start_kubelet()
        self.wait_ready()

    def kill(self, process):
        """As a crash does it; containers go on."""
        process.destroy()

    def crictl(self, *words, seconds=60):
        return self.machine.run(*self.crictl_words(), *words, seconds=seconds)

    def crictl_words(self):
        endpoint = f"unix://{SOCKET}"
        return [build.BINARIES / "crictl", "--config", self.machine.state / "crictl.yaml", "--timeout", "30s",
                "--runtime-endpoint", endpoint, "--image-endpoint", endpoint]

    def container(self, namespace, name, pod=None, is_running=True):
        """The running one of this name, in a pod of the namespace, or the latest one at all; None if there is none."""
        labels = {"io.kubernetes.pod.namespace": namespace} | ({"io.kubernetes.pod.name": pod} if pod else {})
        words = [word for label, value in labels.items() for word in ("--label", f"{label}={value}")]
        words += ["--state", "Running"] if is_running else ["--all"]
        found = self.crictl("ps", "--quiet", "--name", f"^{name}$", *words).split()
        return found[0] if found else None

    def inside(self, identity, *words):
        """The command, so that it runs in that container, with its standard input and output."""
        return self.machine.around([*self.crictl_words(), "exec", "--interactive", identity, *words])

    def remove(self):
        self.machine.remove()
        for process in (self.kubelet, self.containerd):
            if process is not None:
                process.destroy()


def says_ready(node):
    """By the object's conditions."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
