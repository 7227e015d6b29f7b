"""Pods as a container runtime makes them: application and proxy are different users in one network namespace and one cgroup, with
the library and the broker's socket on read-only mounts; with a user namespace of the pod's own, and without one."""

import contextlib
import os
import subprocess
import uuid

from apps.support import echo, versions
from testkit import cgroups, paths, wait
from testkit.cgroups import Cgroup

PYTHON = "/usr/bin/python3"
# Their numbers in the pod.
APPLICATION, PROXY = 1000, 1337
# The host's number of the pod's root, and how many users the pod has.
FIRST, USERS = 200_000, 65_536
SAME_POD = "same-pod = true\n"


def version():
    return versions.of(r"(Python \S+)", PYTHON)


class Pod:
    """The namespaces of a pod, held by a process that sleeps, and its cgroup."""

    def __init__(self, case, has_users):
        self.case = case
        self.has_users = has_users
        self.cgroup = cgroup_of_a_pod(case)
        kinds = ["--net", "--mount", *(["--user"] if has_users else [])]
        self.pause = case.start("pause", [paths.program("unshare"), *kinds, "sleep", "120"], preload=False)
        wait.until(lambda: namespace(self.pause.pid) != namespace("self"), "the pod's namespaces", 10)
        if has_users:
            for kind in ("uid_map", "gid_map"):
                with open(f"/proc/{self.pause.pid}/{kind}", "w") as numbers:
                    numbers.write(f"0 {FIRST} {USERS}")

    def around(self, user):
        """What goes before a command that this user of the pod runs."""
        entered = ["--user"] if self.has_users else []
        inside = [paths.program("nsenter"), "--target", self.pause.pid, "--net", "--mount", *entered, "--setuid", user,
                  "--setgid", user]
        return self.cgroup.around(inside)

    def run(self, script):
        """By its root."""
        subprocess.run([*self.around(0), "sh", "-ec", script], check=True, timeout=20)

    def show(self, directory):
        """Mounts a directory of the host, read-only, at the same path."""
        self.run(f"mount --bind {directory} {directory}; mount -o remount,bind,ro {directory}")


def cgroup_of_a_pod(case):
    """As the kubelet names it."""
    above = cgroups.version_2() / "kubepods" / "burstable"
    above.mkdir(parents=True, exist_ok=True)
    pod = Cgroup(above / f"pod{uuid.uuid4()}")
    case.at_end(pod.remove)
    for directory in (above, above.parent):
        case.at_end(lambda directory=directory: remove_if_empty(directory))
    return pod.child("container")


def remove_if_empty(directory):
    """Other pods may be there."""
    with contextlib.suppress(OSError):
        directory.rmdir()


def namespace(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def start(case, pod, role, user, argv):
    """A program that somebody else put the library into, as an injector does."""
    env = {}
    if case.layer is not None:
        case.report_path(role).touch()
        case.report_path(role).chmod(0o666)
        env = {**case.layer.preload_env(case.report_path(role)), "SIDESTEP_BROKER": str(case.tmp / "member" / "broker")}
        env["LD_PRELOAD_"] = env.pop("LD_PRELOAD")
        argv = ["sh", "-c", 'export LD_PRELOAD="$LD_PRELOAD_"; unset LD_PRELOAD_; exec "$@"', "sh", *argv]
    return case.start(role, argv, preload=False, wrap=pod.around(user), env=env)


def prepare(case, has_users):
    """A broker for pods, and a pod that sees its socket and the library."""
    case.tmp.chmod(0o755)
    pod = Pod(case, has_users)
    pod.run("ip link set lo up")
    if case.layer is not None:
        member = case.tmp / "member"
        member.mkdir()
        (case.tmp / "config.toml").write_text(SAME_POD)
        case.layer.copy_binaries(case.tmp / "bin")
        address = ["--address", member / "broker", "--config", case.tmp / "config.toml", "--idle-exit", "0"]
        case.start("broker", [case.layer.bin_dir / "sidestepd", *address], preload=False)
        wait.until((member / "broker").exists, "the broker's socket", 10)
        pod.show(member)
        pod.show(case.layer.bin_dir)
    return pod


def exchange(case, pod):
    served = start(case, pod, "server", APPLICATION, [PYTHON, peer(case, "echo_server.py"), "--mode", "threads"])
    port = int(served.wait_output(echo.LISTENING, 30).group(1))
    client = start(case, pod, "client", PROXY, [PYTHON, peer(case, "echo_client.py"), "--mode", "threads", "--port", str(port)])
    client.wait(60)
    served.stop()


def peer(case, name):
    """A copy, for users who cannot look into the checkout."""
    copy = case.tmp / name
    copy.write_text((paths.PEERS / name).read_text())
    return str(copy)


def test_users_of_a_pod(case):
    case.expect_ring("server", "client")
    exchange(case, prepare(case, has_users=False))


def test_users_of_a_pod_in_a_user_namespace(case):
    """The host's root is nobody there, and the broker is believed for its read-only mount."""
    case.expect_ring("server", "client")
    exchange(case, prepare(case, has_users=True))


def test_a_broker_that_anybody_could_be(case):
    """In a user namespace, with a socket on a mount that the pod's root can write to: nobody joins."""
    case.expect_seen("server", "client")
    case.expect_kernel("server", "client")
    pod = prepare(case, has_users=True)
    if case.layer is not None:
        pod.run(f"mount -o remount,bind,rw {case.tmp / 'member'}")
    exchange(case, pod)
