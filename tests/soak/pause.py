"""The broker stands still while hundreds of connections end: what it could not be told then, it is told later.

The socket to the broker takes some 280 records; a server that loses more connections than that at once must not
forget the rest, or their slots and offers are taken for as long as it lives.
"""

import contextlib
import os
import signal
import sys

from soak.world import Idle, connections, start_redis
from testkit import wait
from testkit.case import Case
from testkit.failure import Failure
from testkit.sidestep import Sidestep

CONNECTIONS = 900
SECONDS = 15


def run():
    return [one("slots", True, lambda status: len(status["connections"])),
            one("offers", False, lambda status: status["waiting_offers"])]


def one(what, preload, count):
    """With both ends under Sidestep there are slots to give back; with one there are offers to withdraw."""
    layer = Sidestep(f"@sidestep-soak-{os.getpid()}-pause-{what}")
    case = Case(f"pause-{what}", layer)
    try:
        port, _ = start_redis(case)
        witness = Idle(case, [("redis", port, 1)], "witness")
        kept = count(layer.status())
        many = Idle(case, [("redis", port, CONNECTIONS)], "many", preload)
        wait.until(lambda: count(layer.status()) >= CONNECTIONS, f"{CONNECTIONS} {what}", SECONDS)
        with stopped(layer):
            many.end()
            wait.until(lambda: connections([port]) == 2, "redis to close its ends", SECONDS)

        def left():
            witness.ask()  # a call of the server: it does nothing of its own accord
            return count(layer.status()) - kept
        result = verdict(what, left)
        witness.end()
        case.expect_ring("redis", "witness")
        case.finish()
    finally:
        case.cleanup()
    return result


def verdict(what, left):
    try:
        wait.until(lambda: left() <= 0, f"no {what} to be left", SECONDS)
        ok, detail = True, f"{CONNECTIONS} ended"
    except Failure:
        ok, detail = False, f"{left()} of {CONNECTIONS} are left"
    print(f"pause: {'ok  ' if ok else 'FAIL'} {what} are given back after a pause of the broker: {detail}",
          file=sys.stderr)
    return {"pass": "pause", "check": f"{what} are given back after a pause of the broker", "ok": ok, "detail": detail}


@contextlib.contextmanager
def stopped(layer):
    pids = layer.broker_pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
