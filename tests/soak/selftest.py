"""Would a leak be seen? The same sampling and the same judgement, of a program that leaks one unit in 1000
connections (peers/leaky.py), and of the same program when it does not."""

import re
import socket
import struct
import sys
from pathlib import Path

from soak import level, sampling
from testkit.case import Case

LEAKY = Path(__file__).resolve().parent / "peers" / "leaky.py"
LISTENING = re.compile(r"listening on (\d+)")
RESET = struct.pack("ii", 1, 0)
SAMPLES = 9
# Enough between the medians of two thirds that one unit in 1000 connections passes the floor of the metric.
ROOM_ABOVE_FLOOR = 1.5
KINDS = ("fds", "mappings", "rss")


def run():
    results = []
    for kind in KINDS:
        verdict = watch(kind, step_for(kind), [kind])[0]
        results.append(tell(f"1 of {kind} leaked in {level.CONNECTIONS_A_UNIT} connections is found", not verdict.level, verdict))
    for verdict in watch("nothing", max(map(step_for, KINDS)), KINDS):
        results.append(tell(f"no leak of {verdict.metric} is none", verdict.level, verdict))
    return results


def step_for(kind):
    return int(level.FLOORS[kind] * level.CONNECTIONS_A_UNIT * ROOM_ABOVE_FLOOR / (SAMPLES // 3))


def watch(leak, step, metrics):
    """Verdicts on a program with this leak, sampled after every `step` connections."""
    case = Case(f"selftest-{leak}")
    try:
        process = case.start("leaky", [sys.executable, LEAKY, leak])
        port = int(process.wait_output(LISTENING).group(1))
        samples = []
        for number in range(SAMPLES):
            connect(port, step)
            samples.append(((number + 1) * step, sampling.of([process.pid])))
        case.finish()
    finally:
        case.cleanup()
    return [level.judge("leaky", key, [(count, sample[key]) for count, sample in samples]) for key in metrics]


def tell(what, ok, verdict):
    detail = f"{verdict.second:g} -> {verdict.last:g}, allowed +{verdict.allowed:g}, {verdict.connections} connections"
    print(f"selftest: {'ok  ' if ok else 'FAIL'} {what}: {detail}", file=sys.stderr)
    return {"pass": "selftest", "check": what, "ok": ok, "detail": detail}


def connect(port, count):
    """Connections that leave nothing in TIME_WAIT, each seen by the server before the next."""
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.recv(1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
