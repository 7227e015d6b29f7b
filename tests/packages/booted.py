"""The packages under a real systemd: process 1 of a pid namespace, in the small Debian."""

import contextlib
import subprocess

from testkit import cgroups, wait
from testkit.commands import ENV, run
from testkit.failure import Failure, check

SOCKET = "/run/sidestep/broker"
# A container without devices and a console. The cgroup namespace begins where the test has put the process.
BOOT = """
mount --make-rprivate /
mkdir -p "$0/sys/fs/cgroup"
mount -t sysfs sysfs "$0/sys"
mount -t cgroup2 cgroup2 "$0/sys/fs/cgroup"
mount -t proc proc "$0/proc"
exec chroot "$0" /lib/systemd/systemd --system --unit=multi-user.target --log-level=warning
"""


class Booted:
    """systemd, and what is run beside it."""

    def __init__(self, there, cgroup):
        # systemd makes groups beside its own, so its own must not be the top of what it sees.
        words = ["unshare", "--pid", "--mount", "--net", "--cgroup", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-ec", BOOT]
        env = {"PATH": ENV["PATH"], "container": "other"}
        self.process = subprocess.Popen(cgroup.around([*words, there.root]), env=env, stdin=subprocess.DEVNULL)
        self.root = there.root

    def pid(self):
        """Of process 1."""
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(children) as file:
            return file.read().split()[0]

    def run(self, *words):
        inside = ["nsenter", "--target", self.pid(), "--mount", "--net", "--pid", "--cgroup", "--ipc", "chroot", self.root]
        return run(*inside, "env", "LC_ALL=C.UTF-8", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *words, seconds=120)

    def state(self, unit):
        return self.run("systemctl", "show", "--value", "--property=ActiveState", unit).strip()

    def is_up(self):
        with contextlib.suppress(Failure, IndexError, OSError):
            return self.state("sockets.target") == "active"
        return False

    def end(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def booted(world, there):
    cgroup = cgroups.of_this_run("booted")
    machine = Booted(there, cgroup)
    try:
        wait.until(machine.is_up, "systemd to be up", 60)
        yield machine
    finally:
        machine.end()
        cgroup.kill()
        cgroup.remove()


def test_the_socket_starts_the_broker_and_root_commands_it(world):
    with world.installation() as there:
        there.install(world.debs)
        with booted(world, there) as machine:
            check(machine.state("sidestepd.socket") == "active", "the socket does not listen")
            check(machine.state("sidestepd.service") == "inactive", "the broker runs although nobody has asked for it")
            status = ("sidestep", "status", "--address", SOCKET)
            check(f"Broker {SOCKET}" in machine.run(*status), "the broker does not answer root")
            check(machine.state("sidestepd.service") == "active", "another broker has answered")
            # Another user's programs share memory by it: the doctor tries that.
            user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
            doctor = ("sh", "-c", f"sidestep doctor --json --address {SOCKET} || true")
            # On a busy machine one end may have ended before the other one is served.
            wait.until(lambda: "bytes went by ring" in machine.run(*user, *doctor), "a ring for another user", 60)
            machine.run("systemctl", "reload", "sidestepd")
            machine.run("systemctl", "kill", "--signal=KILL", "sidestepd")
            wait.until(lambda: f"Broker {SOCKET}" in machine.run(*status), "the broker to answer after it was killed", 20)
            # Idle, and gone: the next one starts it.
            machine.run("systemctl", "stop", "sidestepd.service")
            check(f"Broker {SOCKET}" in machine.run(*status), "the socket does not start the broker again")
            machine.run("dpkg", "--purge", "sidestep-agent", "sidestep-stack", "sidestep")
            check(machine.run("sh", "-c", "test -e /run/sidestep/broker || echo gone").strip() == "gone", "the socket stays")
