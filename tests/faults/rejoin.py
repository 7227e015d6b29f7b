"""Rounds in which processes outlive their broker and go on making connections."""

import os
import signal
import sys
from pathlib import Path

from faults.rounds import SLOW_SECONDS, SOME_BYTES
from faults.scene import Scene
from testkit import procfs, wait
from testkit.failure import check
from testkit.process import Process

TALKER = Path(__file__).with_name("talker.py")


def new_broker(bench, sig):
    """Processes that live upgrade their new connections under the next broker as they did under the last."""
    with Scene(bench, f"rejoin-{sig.name}") as scene:
        port_file = scene.directory / "port"
        server = talker(scene, "serve", port_file)
        try:
            wait.until(port_file.exists, "the server to listen", SLOW_SECONDS, server.must_run)
            client = talker(scene, "talk", port_file.read_text())
            try:
                return across_brokers(scene, (server, client), sig)
            finally:
                client.destroy()
        finally:
            server.destroy()


def waiting_offer(bench, sig):
    """A connection that one end had offered to the last broker goes by ring under the next."""
    with Scene(bench, f"rejoin-offer-{sig.name}") as scene:
        port_file, go, sent = (scene.directory / name for name in ("port", "go", "sent"))
        server = talker(scene, "serve-late", port_file, go)
        try:
            wait.until(port_file.exists, "the server to listen", SLOW_SECONDS, server.must_run)
            client = talker(scene, "talk-early", port_file.read_text(), go, sent)
            try:
                wait.until(sent.exists, "the first message", SLOW_SECONDS, client.must_run)
                next_broker(scene, sig)
                go.touch()
                return f"{wait_ring(scene, ()):,} bytes by ring under the second broker"
            finally:
                client.destroy()
        finally:
            server.destroy()


def lasting_connection(bench, sig):
    """Processes whose one connection lasts are members of the next broker, too, and obey it."""
    with Scene(bench, f"rejoin-lasting-{sig.name}") as scene:
        port_file, counts = scene.directory / "port", scene.directory / "counts"
        server = talker(scene, "serve", port_file)
        try:
            wait.until(port_file.exists, "the server to listen", SLOW_SECONDS, server.must_run)
            client = talker(scene, "talk-on", port_file.read_text(), counts)
            try:
                return held_by_the_next(scene, counts, sig, alive((server, client)))
            finally:
                client.destroy()
        finally:
            server.destroy()


def held_by_the_next(scene, counts, sig, must_run):
    wait.until(counts.exists, "the first exchanges", SLOW_SECONDS, must_run)
    wait_carrier(counts, False, "before the broker's end", must_run)
    next_broker(scene, sig)
    pids = wait.until(lambda: with_earlier(scene), "both ends to join the next broker", SLOW_SECONDS, must_run)
    wait_carrier(counts, False, "under the next broker", must_run)
    # Either end alone moves both directions.
    for scope in (["--all"], *(["--pid", str(pid)] for pid in pids)):
        for command, by_kernel in (("detach", True), ("attach", False)):
            scene.layer.operate(command, *scope)
            wait_carrier(counts, by_kernel, f"after {command} {scope}", must_run)
    check(with_earlier(scene) == pids, "the ends are members no more")
    return f"processes {pids} joined the next broker, and went to the kernel and back three times"


def with_earlier(scene):
    """Numbers of the members that say that they have one connection of an earlier broker. None: they are not two."""
    processes = (scene.status() or {"processes": []})["processes"]
    found = sorted(process["pid"] for process in processes if process["earlier_connections"] == 1)
    return found if len(found) == 2 else None


def wait_carrier(counts, by_kernel, when, must_run):
    what = "the kernel" if by_kernel else "rings"
    wait.until(lambda: is_by_kernel(counts, must_run) == by_kernel, f"bytes by {what} {when}", SLOW_SECONDS, must_run)


def is_by_kernel(counts, must_run):
    """Whether the kernel carries both directions, or none. None: neither."""
    def read():
        return [int(word) for word in counts.read_text().split()]
    before = read()
    wait.until(lambda: read()[0] >= before[0] + SOME_BYTES, "some bytes", SLOW_SECONDS, must_run)
    carried, kernel = (now - then for now, then in zip(read(), before))
    return False if kernel == 0 else True if kernel > 3 * carried / 4 else None


def alive(processes):
    """A function that fails if one of them has ended."""
    def must_run():
        for process in processes:
            process.must_run()
    return must_run


def talker(scene, *words):
    argv = scene.layer.command([sys.executable, TALKER, *words], scene.directory / f"{words[0]}.report")
    return Process(words[0], argv, scene.directory / f"{words[0]}.log", scene.layer.env())


def across_brokers(scene, processes, sig):
    first = wait_ring(scene, processes)
    next_broker(scene, sig)
    second = wait_ring(scene, processes)
    for process in reversed(processes):
        process.stop()
    return f"{first:,} bytes by ring under the first broker, {second:,} so far under the second"


def next_broker(scene, sig):
    for pid in scene.layer.broker_pids():
        os.kill(pid, sig)
        wait.until(lambda pid=pid: not procfs.is_running(pid), "the broker to end", SLOW_SECONDS)
    scene.layer.start_broker()


def wait_ring(scene, processes):
    """Waits until the present broker has seen connections end that had carried bytes by ring."""
    return wait.until(lambda: (scene.status() or {"totals": {"ring_rx": 0}})["totals"]["ring_rx"],
                      "bytes by ring", SLOW_SECONDS, alive(processes))


def new_broker_after_sigkill(bench):
    return new_broker(bench, signal.SIGKILL)


def new_broker_after_sigterm(bench):
    return new_broker(bench, signal.SIGTERM)


def waiting_offer_after_sigkill(bench):
    return waiting_offer(bench, signal.SIGKILL)


def lasting_connection_after_sigkill(bench):
    return lasting_connection(bench, signal.SIGKILL)


ROUNDS = (new_broker_after_sigkill, new_broker_after_sigterm, waiting_offer_after_sigkill,
          lasting_connection_after_sigkill)
