"""A node: containerd with runc in a network namespace without a route outside, a broker, and the plugin."""

import json
import re
import shutil
import urllib.request
from pathlib import Path

from cluster import build
from testkit import paths, procfs, wait
from testkit.commands import run
from testkit.failure import Failure
from testkit.namespaces import Namespace
from testkit.process import Process
from testkit.testbed import Testbed

PROGRAMS = ("ip", "nsenter", "gcc", "musl-gcc", "redis-server", "redis-benchmark", "ldd")
CNI_PROGRAMS = Path("/usr/lib/cni")
CGROUPS = Path("/sys/fs/cgroup")
READY_SECONDS = 30
CRICTL_SECONDS = 60

CONTAINERD = """\
version = 3
root = "{directory}/root"
state = "{directory}/state"
[grpc]
  address = "{directory}/containerd.sock"
[ttrpc]
  address = "{directory}/containerd.sock.ttrpc"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{cni}"]
  conf_dir = "{directory}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "{runc}"
[plugins.'io.containerd.nri.v1.nri']
  socket_path = "{directory}/nri.sock"
  plugin_path = "{directory}/nri"
  plugin_config_path = "{directory}/nri"
"""

NETWORK = {"cniVersion": "1.0.0", "name": "test", "plugins": [{
    "type": "ptp", "ipMasq": False,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}


class Node(Testbed):
    def __init__(self, images, options):
        super().__init__(PROGRAMS, "cluster", options.keep)
        self.images = images
        self.release = paths.built("release", "sidestep", "sidestepd", "libsidestep.so", directory=options.release)
        self.plugin_program = paths.built("debug", "sidestep-nri") / "sidestep-nri"
        self.runtime = build.OLDER_RUNTIME if options.older_runtime else build.BINARIES
        self.pods, self.uids = [], []

    def start(self):
        super().start()
        if not (CNI_PROGRAMS / "ptp").exists():
            raise Failure("there are no CNI plugins: run tools/install-deps cluster")
        self.namespace = Namespace("node")
        self.stack.callback(self.namespace.remove)
        self.write_configuration()
        self.foreign_cgroups = {*CGROUPS.glob("**/kubepods"), *CGROUPS.glob("**/kubepods/besteffort")}
        self.stack.callback(self.clear_cgroups)
        self.containerd = None
        self.stack.callback(lambda: self.containerd.destroy())
        self.start_containerd()
        self.stack.callback(self.remove_pods)
        for image in self.images:
            archive = self.directory / "image.tar"
            image.write(archive)
            self.ctr("images", "import", archive)
        self.start_broker()
        self.version = self.install_library(self.release)
        self.write("namespaces", "# enrolled\nlisted\n")
        self.plugin, self.configured = None, 0
        self.stack.callback(lambda: self.plugin.destroy())
        self.start_plugin()

    def write_configuration(self):
        pause = next(image.name for image in self.images if "pause" in image.name)
        for name in ("cni", "nri", "report", "member"):
            (self.directory / name).mkdir()
        (self.directory / "report").chmod(0o777)
        # Users of a pod that has its own must get to their root.
        self.directory.chmod(0o755)
        network = json.loads(json.dumps(NETWORK))
        network["plugins"][0]["ipam"]["dataDir"] = str(self.directory / "ipam")
        self.write("cni/10-test.conflist", json.dumps(network))
        self.write("crictl.yaml", "")
        self.write("containerd.toml", CONTAINERD.format(
            directory=self.directory, pause=pause, cni=CNI_PROGRAMS, runc=build.BINARIES / "runc"))

    def write(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return path

    def start_process(self, role, command, inside=False):
        command = self.namespace.around(command) if inside else command
        env = {**self.env, "PATH": f"{self.runtime}:{self.env['PATH']}"}
        return Process(role, command, self.directory / f"{role}.log", env)

    # --- containerd -------------------------------------------------------------------------------

    def start_containerd(self):
        command = [self.runtime / "containerd", "--config", self.directory / "containerd.toml"]
        self.containerd = self.start_process("containerd", command, inside=True)
        wait.until(self.is_ready, "containerd to be ready", READY_SECONDS, self.containerd.must_run)

    def is_ready(self):
        """Ready for pods, which means that its network is."""
        try:
            info = json.loads(self.crictl("info"))
        except Failure:
            return False
        ready = {condition["type"] for condition in info["status"]["conditions"] if condition["status"]}
        return {"RuntimeReady", "NetworkReady"} <= ready

    def restart_containerd(self):
        """Containers go on without it."""
        self.containerd.popen.kill()
        self.containerd.popen.wait()
        self.start_containerd()
        self.configured += 1
        self.wait_configured(self.configured)

    def crictl(self, *words):
        """Inside the node, where containerd serves the streams of `exec`."""
        endpoint = f"unix://{self.directory}/containerd.sock"
        command = [build.BINARIES / "crictl", "--config", self.directory / "crictl.yaml", "--timeout", "30s",
                   "--runtime-endpoint", endpoint, "--image-endpoint", endpoint, *words]
        return run(*self.namespace.around(command), seconds=CRICTL_SECONDS)

    def ctr(self, *words):
        return run(build.BINARIES / "ctr", "--address", self.directory / "containerd.sock", "--namespace", "k8s.io", *words,
                   seconds=CRICTL_SECONDS)

    # --- Sidestep ---------------------------------------------------------------------------------

    def start_broker(self):
        config = self.write("sidestep.toml", "same-pod = true\n")
        self.address = self.directory / "member" / "broker"
        self.broker = self.start_process("sidestepd", [self.release / "sidestepd", "--address", self.address,
                                                       "--config", config, "--idle-exit", "0"])
        # `destroy` leaves brokers alone, since `sidestep run` starts some that others use.
        self.stack.callback(self.broker.popen.kill)
        wait.until(self.address.exists, "the broker's socket", READY_SECONDS, self.broker.must_run)

    def install_library(self, source):
        """The directory of the version that containers get."""
        words = ("install", "--from", source, "--to", self.directory / "lib")
        return Path(run(self.plugin_program, *words).strip())

    def collect(self, library):
        """What `collect` says that it has done."""
        return run(self.plugin_program, "collect", "--library", library, "--keep", "0", "--proc", self.visible_processes())

    def visible_processes(self):
        """A directory like /proc, of the processes that root may look at: in a container that is not each."""
        directory = self.directory / "proc"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for pid in procfs.all_pids():
            if is_readable(Path(f"/proc/{pid}/maps")):
                (directory / str(pid)).symlink_to(f"/proc/{pid}")
        return directory

    def start_plugin(self):
        self.plugin = self.start_process("plugin", [
            self.plugin_program, "run", "--socket", self.directory / "nri.sock", "--library", self.directory / "lib",
            "--member", self.directory / "member", "--namespaces-file", self.directory / "namespaces",
            "--events", self.directory / "events", "--metrics", "127.0.0.1:0"])
        self.configured += 1
        self.wait_configured(self.configured)

    def stop_plugin(self):
        self.plugin.stop()

    def wait_configured(self, times):
        """Until runtimes have configured the plugin, and those before it, so many times."""
        pattern = re.compile('("event":"configured".*){%d}' % times, re.DOTALL)
        self.plugin.wait_output(pattern, READY_SECONDS)

    def events(self):
        whole = (self.directory / "events").read_text().split("\n")[:-1]
        return [json.loads(line) for line in whole]

    def wait_event(self, pod, container):
        """The plugin's line about a container that does not use rings."""
        def found():
            lines = [event for event in self.events() if (event["pod"], event["container"]) == (pod.name, container)]
            return lines[-1] if lines else None
        return wait.until(found, f"an event about {pod.name}/{container}", READY_SECONDS, self.plugin.must_run)

    def metric(self, name):
        address = self.plugin.wait_output(re.compile(r"http://([0-9.:]+)/metrics")).group(1)
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.search(rf"^{re.escape(name)} ([0-9.e+-]+)$", text, re.MULTILINE)
        if not found:
            raise Failure(f"there is no metric {name} in:\n{text}")
        return float(found.group(1))

    # --- pods -------------------------------------------------------------------------------------

    def remove_pods(self):
        for pod in self.pods:
            try:
                pod.remove()
            except (Failure, OSError) as failure:
                # What is left of a pod must not keep the others from being removed.
                print(f"cluster: {pod.name} cannot be removed: {failure}")

    def clear_cgroups(self):
        """The runtime removes cgroups of containers, and a kubelet those of pods; what they are in goes if this run made it."""
        for uid in self.uids:
            for directory in CGROUPS.glob(f"**/kubepods/besteffort/pod{uid}"):
                wait.until(lambda path=directory: remove_empty(path), f"{directory} to be empty", READY_SECONDS)
        for directory in (*CGROUPS.glob("**/kubepods/besteffort"), *CGROUPS.glob("**/kubepods")):
            if directory not in self.foreign_cgroups:
                remove_empty(directory)

    @staticmethod
    def proc(pid, file):
        return Path("/proc", str(pid), file).read_text(errors="replace")


def is_readable(path):
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError:
        return False
    return True


def remove_empty(directory):
    """Whether the directory is gone."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
