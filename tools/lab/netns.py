"""Network namespaces and cgroups of a measurement, and commands within them."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from .errors import LabError

NETNS = Path("/run/netns")
#: cgroup v2 alone, or beside version 1.
CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
#: No router advertisements and the like between two measurements.
QUIET = ("net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
#: Before a command that is to end with us, even if we are killed outright.
MORTAL = ("setpriv", "--pdeathsig", "KILL")


class TooSlow(LabError):
    """A command was not done in its time."""


def must(argv, text=None, limit=60, install="bench-services"):
    """Runs a command to its end."""
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=limit, check=False)
    except FileNotFoundError as why:
        raise LabError(f"'{argv[0]}' is not installed; run: tools/install-deps {install}") from why
    except subprocess.TimeoutExpired as why:
        raise TooSlow(f"{' '.join(argv)}: not done after {limit:.0f} s") from why
    if done.returncode:
        raise LabError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode} (needs root)")
    return done.stdout


def inside(namespace, argv):
    """The command, in that namespace. nsenter and not `ip netns exec`, which hides the cgroups."""
    return ["nsenter", f"--net={NETNS / namespace}", *argv]


def add(name, settings):
    must(["ip", "netns", "add", name])
    must(["ip", "-n", name, "link", "set", "lo", "up"])
    must(inside(name, ["sysctl", "-qw", *settings]))


def delete(name):
    if (NETNS / name).exists():
        must(["ip", "netns", "delete", name])


@contextlib.contextmanager
def undisturbed():
    """Cleaning up goes on to its end, whatever signal comes."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def cgroup_root():
    for root in CGROUPS:
        if (root / "cgroup.controllers").exists():
            return root
    raise LabError("cgroup v2 is not mounted; run: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")


def join(cgroup):
    """What a child does before it becomes a program of that cgroup."""
    (cgroup / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


def remove_leftovers(prefix):
    """What a run left that was killed outright: BPF file systems, namespaces and cgroups, named PREFIX PID - LABEL."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    for mount in mounts:
        if is_left(Path(mount).parent, prefix):
            must(["umount", "--lazy", mount])
    for path in NETNS.iterdir() if NETNS.exists() else ():
        if is_left(path, prefix):
            delete(path.name)
    for path in cgroup_root().iterdir():
        if is_left(path, prefix):
            remove_cgroup(path)


def is_left(path, prefix):
    """Whether it belongs to a run that is no more."""
    pid, dash, _ = path.name.removeprefix(prefix).partition("-")
    return path.name.startswith(prefix) and bool(dash) and pid.isdigit() and not Path("/proc", pid).exists()


def remove_cgroup(path):
    """With those within."""
    if path.exists():
        for each in path.iterdir():
            if each.is_dir():
                remove_cgroup(each)
        path.rmdir()
