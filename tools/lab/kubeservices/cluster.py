"""A node with pods, made of network namespaces on one bridge, and nothing that leads outside.

    node namespace     bridge 10.244.0.1/16
       |     |    |
    client  pod  pod   10.244.0.2, .11, .12, ...

As on a node of Kubernetes bridged packets pass the node's rules (bridge-nf-call-iptables), pods reach everything else by
way of the node, and the client has a cgroup of its own.
"""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from ..errors import LabError
from . import workload

NETNS = Path("/run/netns")
#: cgroup v2 alone, or beside version 1.
CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
PREFIX = "stb"
#: Of the node. The rest of what Kubernetes sets concerns other traffic.
NODE_SETTINGS = (
    "net.ipv4.ip_forward=1",
    "net.ipv4.conf.all.send_redirects=0",
    "net.ipv4.conf.default.send_redirects=0",
)
BRIDGE_SETTING = "net.bridge.bridge-nf-call-iptables=1"
#: No router advertisements and the like between two measurements.
QUIET = ("net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")


#: Before a command that is to end with us, even if we are killed outright.
MORTAL = ("setpriv", "--pdeathsig", "KILL")


class TooSlow(LabError):
    """A command was not done in its time."""


def must(argv, text=None, limit=60):
    """Runs a command to its end."""
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=limit, check=False)
    except FileNotFoundError as why:
        raise LabError(f"'{argv[0]}' is not installed; run: tools/install-deps bench-services") from why
    except subprocess.TimeoutExpired as why:
        raise TooSlow(f"{' '.join(argv)}: not done after {limit:.0f} s") from why
    if done.returncode:
        raise LabError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode} (needs root)")
    return done.stdout


def inside(namespace, argv):
    """The command, in that namespace. nsenter and not `ip netns exec`, which hides the cgroups."""
    return ["nsenter", f"--net={NETNS / namespace}", *argv]


@contextlib.contextmanager
def undisturbed():
    """Cleaning up goes on to its end, whatever signal comes."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Cluster:
    def __init__(self, label, pods):
        self.name = f"{PREFIX}{os.getpid()}-{label}"
        self.node, self.client = f"{self.name}-node", f"{self.name}-client"
        self.pods = {address: f"{self.name}-p{number}" for number, address in enumerate(pods)}
        self.cgroup = cgroup_root() / self.name

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with undisturbed():
            with contextlib.suppress(OSError):
                self.cgroup.rmdir()
            for name in (self.client, *self.pods.values(), self.node):
                if (NETNS / name).exists():
                    must(["ip", "netns", "delete", name])

    def _make(self):
        self.cgroup.mkdir()
        self._namespace(self.node, (*QUIET, *NODE_SETTINGS))
        must(["ip", "-n", self.node, "link", "add", "br0", "type", "bridge"])
        must(["ip", "-n", self.node, "addr", "add", f"{workload.NODE}/{workload.POD_PREFIX}", "dev", "br0"])
        must(["ip", "-n", self.node, "link", "set", "br0", "up"])
        must(inside(self.node, ["sysctl", "-qw", BRIDGE_SETTING]))
        self._pod(self.client, str(workload.CLIENT), "client")
        for number, (address, name) in enumerate(self.pods.items()):
            self._pod(name, address, f"p{number}")

    def _namespace(self, name, settings):
        must(["ip", "netns", "add", name])
        must(["ip", "-n", name, "link", "set", "lo", "up"])
        must(inside(name, ["sysctl", "-qw", *settings]))

    def _pod(self, name, address, outside):
        self._namespace(name, QUIET)
        peer = ["peer", "name", "eth0", "netns", name]
        must(["ip", "-n", self.node, "link", "add", outside, "type", "veth", *peer])
        must(["ip", "-n", self.node, "link", "set", outside, "master", "br0", "up"])
        steps = (
            f"addr add {address}/{workload.POD_PREFIX} dev eth0",
            "link set eth0 up",
            f"route add default via {workload.NODE}",
        )
        must(["ip", "-n", name, "-batch", "-"], "\n".join(steps) + "\n")

    def join(self):
        """What a child does before it becomes the client."""
        (self.cgroup / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


def cgroup_root():
    for root in CGROUPS:
        if (root / "cgroup.controllers").exists():
            return root
    raise LabError("cgroup v2 is not mounted; run: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")


def remove_leftovers():
    """What a run left that was killed outright: BPF file systems, namespaces and cgroups."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    for mount in mounts:
        if is_left(Path(mount).parent):
            must(["umount", "--lazy", mount])
    folders = [folder for folder in (NETNS, cgroup_root()) if folder.exists()]
    for path in [path for folder in folders for path in folder.iterdir() if is_left(path)]:
        if path.parent == NETNS:
            must(["ip", "netns", "delete", path.name])
        else:
            path.rmdir()


def is_left(path):
    """Whether it belongs to a run that is no more."""
    pid, dash, _ = path.name.removeprefix(PREFIX).partition("-")
    return path.name.startswith(PREFIX) and bool(dash) and pid.isdigit() and not Path("/proc", pid).exists()
