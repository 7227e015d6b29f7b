"""What a long-lived broker, and the machine, must not have kept when the members are gone."""

import json
import os
import subprocess

from support import procfs, wait
from support.failure import Failure, check


class BrokerWatch:
    """Compares the broker's descriptors and mappings with those it had before anybody had used it."""

    def __init__(self, layer):
        self.layer = layer
        subprocess.run(layer.command(["true"], os.devnull), env=layer.env(), check=True, timeout=20)
        wait.until(self.is_idle, "a fresh broker without members")
        self.fresh = self.holdings()

    def pid(self):
        pids = self.layer.broker_pids()
        check(len(pids) == 1, f"{len(pids)} brokers of one name, not one")
        return pids[0]

    def holdings(self):
        """How many descriptors, and how many mappings of shared memory, the broker has."""
        pid = self.pid()
        with open(f"/proc/{pid}/maps") as maps:
            shared = sum("memfd:" in line for line in maps)
        return len(procfs.fds(pid)), shared

    def holds_no_more(self):
        return all(now <= fresh for now, fresh in zip(self.holdings(), self.fresh))

    def is_idle(self):
        return all(count == 0 for count in self.status_counts().values())

    def status_counts(self):
        """Members and links and the like, counted, as `sidestep status --json` tells them."""
        done = subprocess.run([self.layer.cli, "status", "--json"], env=self.layer.env(), capture_output=True,
                              text=True, timeout=20)
        check(done.returncode == 0, f"sidestep status failed: {done.stderr.strip()}")
        return counts(json.loads(done.stdout))

    def check_clean(self, seconds=10):
        """The broker may need a moment to notice that a process has ended, and no longer."""
        try:
            wait.until(lambda: self.is_idle() and self.holds_no_more(), "the broker to let go", seconds)
        except Failure as failure:
            raise Failure(f"{failure}: status {self.status_counts()}, (descriptors, mappings) {self.holdings()}, "
                          f"fresh {self.fresh}; open: {sorted(procfs.fds(self.pid()).values())}") from None


COUNTED = ("processes", "links", "connections", "waiting_offers")


def counts(status):
    """The sizes of what the status lists. At least links must be told, else the check would check nothing."""
    sizes = {}
    for key in COUNTED:
        value = status.get(key)
        if value is not None:
            sizes[key] = value if isinstance(value, int) else len(value)
    if "links" not in sizes:
        raise Failure(f"sidestep status --json tells no links, only {sorted(status)}")
    return sizes


def shm_files():
    """Files of ours in /dev/shm. There must never be any."""
    return {name for name in os.listdir("/dev/shm") if "sidestep" in name}


def processes_of(binary):
    """Processes that still run this program."""
    running = []
    for pid in procfs.all_pids():
        try:
            if os.readlink(f"/proc/{pid}/exe").startswith(str(binary)):
                running.append(pid)
        except OSError:
            continue
    return running
