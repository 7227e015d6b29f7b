"""The things that go wrong in a round. Each fault is a function of a running, warmed-up pair."""

import os
import signal
import time

from chaos.pair import OTHER, all_threads_stopped
from chaos.progress import kind
from testkit import procfs, wait
from testkit.failure import check

# A stream must move on by so many bytes to prove that it lives.
PROOF_BYTES = 20_000
# How long a survivor is watched while its peer is stopped, and the part of a core it may use meanwhile.
WATCH_SECONDS = 0.2
IDLE_SHARE = 0.5


def kill(pair, side, _choose):
    """SIGKILL at any instruction."""
    pair.send(side, signal.SIGKILL)
    pair.survive(side, delivered=set())


def kill_frozen(pair, side, _choose):
    """SIGKILL while both are stopped, so that the kernel's queues can be read: a full account of every stream."""
    freeze(pair, *OTHER)
    delivered = empty_queues(pair, side)
    pair.send(side, signal.SIGKILL)
    wait.until(lambda: not procfs.is_running(pair.progress[side].pid), f"{side} to die")
    pair.send(OTHER[side], signal.SIGCONT)
    pair.survive(side, delivered)
    return sum(1 for number in delivered if kind(number) == "duplex")


def stop(pair, side, _choose):
    """SIGSTOP and SIGCONT: the peer stalls without burning CPU, then everything goes on."""
    freeze(pair, side)
    others = {role: pair.progress[role].pid for role in pair.ROLES if role != side}
    wait_stalled(pair)
    used, since = {role: procfs.cpu_seconds(pid) for role, pid in others.items()}, time.monotonic()
    time.sleep(WATCH_SECONDS)  # the length of the measurement, not a wait for anything
    for role, pid in others.items():
        share = (procfs.cpu_seconds(pid) - used[role]) / (time.monotonic() - since)
        check(share < IDLE_SHARE, f"{role} uses {share:.0%} of a core while the {side} is stopped")
    pair.send(side, signal.SIGCONT)
    go_on(pair, "after SIGCONT")


def kill_broker(pair, _side, _choose):
    """SIGKILL to the broker: connections go on without it."""
    end_broker(pair, signal.SIGKILL)
    go_on(pair, "after the broker's death")


def restart_broker(pair, _side, choose):
    """The broker ends, one way or the other, and a new one takes its place: connections go on under it."""
    for _ in range(choose.randint(1, 3)):
        end_broker(pair, choose.choice((signal.SIGKILL, signal.SIGTERM)))
        pair.layer.start_broker()
        pair.wait_bytes(PROOF_BYTES, "under a new broker")
    go_on(pair, "under the last broker")


def end_broker(pair, sig):
    brokers = pair.layer.broker_pids()
    check(len(brokers) == 1, f"{len(brokers)} brokers of one name")
    os.kill(brokers[0], sig)
    wait.until(lambda: not procfs.is_running(brokers[0]), f"the broker to end at {sig.name}")


def detach_attach(pair, _side, choose):
    """The operator takes all connections back to the kernel and lets them upgrade again, under load."""
    for _ in range(choose.randint(1, 3)):
        try:
            pair.layer.operate("detach", "--all")
            pair.wait_bytes(PROOF_BYTES, "after detach")
        finally:
            pair.layer.operate("attach", "--all")  # else all later rounds would stay on the kernel
        pair.wait_bytes(PROOF_BYTES, "after attach")
    go_on(pair, "after the last attach")
    check(pair.returned() > 0, f"no connection was returned by detach: {pair.reports()}")
    check("detached" in pair.reasons(), f"nobody says that it was detached: {pair.reports()}")


def go_on(pair, when):
    """Every stream must move on, come to its ordinary end and be complete."""
    pair.wait_bytes(PROOF_BYTES, when)
    pair.finish()


def freeze(pair, *sides):
    for side in sides:
        pair.send(side, signal.SIGSTOP)
    for side in sides:
        wait.until(lambda pid=pair.progress[side].pid: all_threads_stopped(pid), f"{side} to stop")


def wait_stalled(pair):
    """Waits until nothing moves any more: all that fits into rings and buffers has been written."""
    seen = {"counters": None, "since": time.monotonic()}

    def unchanged():
        now = [pair.progress[side].entries() for side in OTHER]
        if now != seen["counters"]:
            seen.update(counters=now, since=time.monotonic())
        return time.monotonic() - seen["since"] > 0.1
    wait.until(unchanged, "the streams to a stopped peer to stall", 20)


def empty_queues(pair, side):
    """Connections of which the kernel holds nothing unsent, unacknowledged or unread at this side."""
    wanted = {(entry.local_port, entry.remote_port): number
              for number, entry in enumerate(pair.progress[side].entries())}
    empty = set()
    with open("/proc/net/tcp") as table:
        next(table)
        for line in table:
            fields = line.split()
            number = wanted.get((int(fields[1][-4:], 16), int(fields[2][-4:], 16)))
            if number is not None and fields[4] == "00000000:00000000":
                empty.add(number)
    return empty
