"""Rounds in which processes outlive their broker and go on making connections."""

import os
import signal
import sys
from pathlib import Path

from faults.rounds import SLOW_SECONDS
from faults.scene import Scene
from testkit import procfs, wait
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
    def alive():
        for process in processes:
            process.must_run()
    return wait.until(lambda: (scene.status() or {"totals": {"ring_rx": 0}})["totals"]["ring_rx"],
                      "bytes by ring", SLOW_SECONDS, alive)


def new_broker_after_sigkill(bench):
    return new_broker(bench, signal.SIGKILL)


def new_broker_after_sigterm(bench):
    return new_broker(bench, signal.SIGTERM)


def waiting_offer_after_sigkill(bench):
    return waiting_offer(bench, signal.SIGKILL)


ROUNDS = (new_broker_after_sigkill, new_broker_after_sigterm, waiting_offer_after_sigkill)
