"""What the processes of a host hold for connections. After all of them have ended it must be what it was before."""

import os
import re
from pathlib import Path

from testkit import procfs
from testkit.commands import bpftool
from testkit.failure import Failure
from testkit.wait import until

RECORDS = 4096  # the most connections at a time
STACK_OPTIONS = ("--connections", RECORDS)
# The allocator keeps what it has once had for many connections, up to so many KiB.
KEPT = 32768


def of(host):
    """By role: descriptors, and KiB of memory of its own. `records` and `entries` that are in use."""
    keeper, worker = host.stack.pid, host.worker()
    [standby] = [pid for pid in host.stack_children() if pid != worker]
    held = {"records": records(keeper), "entries": entries(keeper)}
    for role, pid in (("keeper", keeper), ("worker", worker), ("standby", standby), ("broker", host.broker.pid)):
        held[f"descriptors of the {role}"] = len(procfs.fds(pid))
        held[f"KiB of the {role}"] = kibibytes(pid)
    return held


def is_idle(pid):
    """The process sleeps in poll(2) or ppoll(2)."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] in ("7", "271")


def kibibytes(pid):
    """Memory of its own that is in use."""
    found = re.search(r"^RssAnon:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1])


def records(keeper):
    """Records of the ledger that are not free: their first words are not 0."""
    [number] = [number for number, link in procfs.fds(keeper).items() if "memfd:sidestep-ledger" in link]
    with open(f"/proc/{keeper}/fd/{number}", "rb") as ledger:
        size = os.fstat(ledger.fileno()).st_size // RECORDS
        firsts = [os.pread(ledger.fileno(), 4, record * size) for record in range(RECORDS)]
    return sum(any(first) for first in firsts)


def entries(keeper):
    """Entries of the tables of taken connections, one for each device."""
    total = 0
    for number, link in procfs.fds(keeper).items():
        info = Path(f"/proc/{keeper}/fdinfo/{number}").read_text() if "bpf-map" in link else ""
        if found := re.search(r"^map_id:\s+(\d+)$", info, re.MULTILINE):
            total += len(bpftool("map", "dump", "id", found[1]))
    return total


def must_not_have_grown(host, fresh):
    """Connections and all that they have left are gone. Returns what is held."""
    def grown():
        now = of(host)
        return {what: (was, now[what]) for what, was in fresh.items() if now[what] > was + (KEPT if "KiB" in what else 0)}
    try:
        until(lambda: not grown(), "what the connections have left to go", 20)
    except Failure as failure:
        raise Failure(f"{host.name}: {failure}: {grown()}") from None
    return of(host)
