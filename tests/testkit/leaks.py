"""What a long-lived broker, a survivor and the machine must not have kept when others are gone."""

import os
import re

from testkit import procfs, wait
from testkit.failure import Failure, check


class BrokerWatch:
    """Compares the broker's descriptors and mappings with those it had before anybody had used it."""

    def __init__(self, layer):
        self.layer = layer
        layer.start_broker()
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
        return counts(self.layer.status())

    def check_clean(self, seconds=10):
        """The broker may need a moment to notice that a process has ended, and no longer."""
        try:
            wait.until(lambda: self.is_idle() and self.holds_no_more(), "the broker to let go", seconds)
        except Failure as failure:
            raise Failure(f"{failure}: status {self.status_counts()}, (descriptors, mappings) {self.holdings()}, "
                          f"fresh {self.fresh}; open: {sorted(procfs.fds(self.pid()).values())}") from None


# The library's descriptors have numbers from here on (crates/sys/src/fd.rs).
LOWEST_OWN = 512
STDIO = {0, 1, 2}
# Doorbells that one process can have, and eventfds that it needs for its own.
PLACES = 64
OWN_BELLS = 1


class Holdings:
    """What a process holds, as far as it concerns Sidestep."""

    def __init__(self, pid):
        links = procfs.fds(pid)
        # Sets that a living program waits in are no leftovers: the peer waits in one for its end.
        self.programs = {number: link for number, link in links.items()
                         if number < LOWEST_OWN and number not in STDIO and "eventpoll" not in link}
        own = [link for number, link in links.items() if number >= LOWEST_OWN]
        self.bells = {bell for number, link in links.items() if "eventfd" in link and (bell := eventfd_id(pid, number))}
        self.sockets = sum(link.startswith("socket:") for link in own)
        self.others = sorted(link for link in own if not re.match(r"socket:|anon_inode:\[(eventfd|eventpoll|signalfd)\]", link))
        with open(f"/proc/{pid}/maps") as maps:
            self.links = len({line.split()[4] for line in maps if "memfd:sidestep-link" in line})

    def leftovers(self, present, broker):
        """What might be left, and whether it is: (what, bool). `broker`: whether the one that gave the links is there."""
        return [("descriptors of closed connections", bool(self.programs or self.others)),
                ("more than one control socket", self.sockets > 1),
                ("links that nobody uses", self.links > (len(present) if broker else 0)),
                ("doorbells of others", len(self.bells) > OWN_BELLS + PLACES * len(present))]

    def __str__(self):
        return (f"{self.links} links, {len(self.bells)} doorbells, {self.sockets} sockets, {self.others}, "
                f"the program's own: {self.programs}")


def eventfd_id(pid, number):
    """The machine-wide number of an eventfd."""
    try:
        with open(f"/proc/{pid}/fdinfo/{number}") as info:
            found = re.search(r"^eventfd-id:\s*(\d+)$", info.read(), re.MULTILINE)
    except OSError:
        return None
    return found and found.group(1)


def check_survivor(role, pid, present, broker, seconds=10):
    """A process whose connections are all closed holds what it needs for new ones, and nothing of peers that are gone.

    `present`: pids of its peers that are still there. `broker`: pid of the one that gave the links; None if it is gone.
    """
    def found():
        mine = Holdings(pid)
        return [what for what, wrong in mine.leftovers(present, broker)
                if wrong], mine

    try:
        wait.until(lambda: not found()[0], f"the {role} to let go", seconds)
    except Failure:
        what, mine = found()
        if what:
            raise Failure(f"the {role} holds {', '.join(what)}: {mine}") from None


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
