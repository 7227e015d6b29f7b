"""A program that holds the lock of its socket makes every call on it sleep. Other domains must not notice."""

import json
import os
import signal
import sys
from pathlib import Path

from hosts.mesh import reaches
from hosts.registry import SLOW, case
from hosts.world import PEER, PORT, Pod
from testkit.failure import Failure
from testkit.wait import until

HOLDER = Path(__file__).with_name("holder.py")
HOLDERS_PORT = PORT + 1
CONNECTIONS = 2
ASKS = ("--connections", CONNECTIONS, "--pause", "1")
# Seconds. A connection that waits for the one that is held waits for as long as the test.
LONG = 1.5


class Scene:
    """Two pods of the server's host, which are two domains: one holds locks, the other does not."""

    def __init__(self, hosts):
        self.hosts, self.host = hosts, hosts.server
        path = self.broker = hosts.directory / "broker"
        broker = self.host.process("broker", [hosts.programs_in / "sidestepd", "--address", path])
        until(path.exists, "the broker of the pods", 10, broker.must_run)
        self.holding, self.other = (Pod(hosts, name, self.host, hosts.client, path, number)
                                    for number, name in enumerate(("holding", "other"), 1))
        self.host.start_stack("--broker", path)
        self.file = hosts.directory / "hold"
        self.holder = self.holding.program("holder", [sys.executable, HOLDER, self.holding.addresses[4], HOLDERS_PORT, self.file])
        until(lambda: reaches(hosts.client, self.holding.addresses[4], HOLDERS_PORT), "the holder to listen", 20, self.holder.must_run)
        self.held = hosts.client.program("held client", [
            sys.executable, PEER, "run", self.holding.addresses[4], HOLDERS_PORT, *ASKS, "--rounds", 2500])
        until(lambda: self.by_stack(self.holding) == CONNECTIONS, "connections to hold", 20, self.held.must_run)

    def by_stack(self, pod):
        """How many connections of a pod the stack carries."""
        return sum(one["local"].startswith(f"{pod.addresses[4]}:") or one["remote"].startswith(f"{pod.addresses[4]}:")
                   for one in pod.status()["connections"] if all(way["carrier"] == "stack" for way in one["directions"]))

    def hold(self):
        self.file.touch()
        until(lambda: "holds\n" in self.holder.output(), "locks to be held", 20, self.holder.must_run)

    def release(self):
        self.file.unlink()
        until(lambda: "holds no more" in self.holder.output(), "locks to be released", 20, self.holder.must_run)

    def send_back(self):
        """The stack is to give the held connections back, and cannot."""
        pid = next(one["pid"] for one in self.holding.status()["processes"] if str(HOLDER) in arguments(one["pid"]))
        self.holding.command("detach", "--pid", str(pid))

    def others_go_on(self, rounds, meanwhile=lambda: None):
        """Connections of the other domain are carried, and answered in time."""
        def look():
            until(lambda: self.by_stack(self.other) == CONNECTIONS, "connections of the other domain by the stack", 20)
            meanwhile()
        self.hosts.exchange(*ASKS, "--rounds", rounds, server=self.other, meanwhile=look)
        slowest = max(self.hosts.said["slowest"])
        if slowest > LONG:
            raise Failure(f"another domain has waited for {slowest:.1f} s")

    def held_ones_go_on(self):
        """With the right bytes."""
        self.holding.command("attach", "--all")
        self.held.wait(90)
        said = json.loads(self.held.output().strip().splitlines()[-1])
        if said["wrong"]:
            raise Failure(f"the connections that were held: {said['wrong']}")


def arguments(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()


def has_ended(pid):
    """Nobody waits for a process whose parent sleeps: it stays a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


@case
def a_lock_that_a_program_holds(hosts, seed):
    """`seed` changes nothing."""
    scene = Scene(hosts)
    scene.hold()
    scene.send_back()
    scene.others_go_on(800)
    scene.release()
    scene.held_ones_go_on()
    hosts.server.stop_stack()


@case(part=SLOW)
def a_worker_that_is_killed_in_a_call_that_sleeps(hosts, seed):
    """The other domain's connections go back in time, and the next worker carries new ones."""
    another_worker_while_a_call_sleeps(hosts, lambda worker: os.kill(worker, signal.SIGKILL))


@case(part=SLOW)
def a_worker_that_is_replaced_in_a_call_that_sleeps(hosts, seed):
    """The same."""
    another_worker_while_a_call_sleeps(hosts, lambda worker: os.kill(hosts.server.stack.pid, signal.SIGHUP))


@case(part=SLOW)
def a_keeper_that_is_killed_in_a_call_that_sleeps(hosts, seed):
    """The other domain's connections go back in time. Once the lock is free, another stack can be started."""
    scene, host = Scene(hosts), hosts.server
    scene.hold()
    worker, keeper = host.worker(), host.stack
    # The worker makes no call. The keeper does in its place.
    os.kill(worker, signal.SIGKILL)
    host.another_worker(worker)

    def end():
        family = host.stack_children()
        os.kill(keeper.pid, signal.SIGKILL)
        until(lambda: all(map(has_ended, family)), "worker and standby to end", 15)
        if len(list(Path(f"/proc/{keeper.pid}/task").iterdir())) < 2:
            raise Failure("no call of the keeper slept")
    scene.others_go_on(4000, meanwhile=end)
    scene.release()
    keeper.popen.wait(10)
    host.start_stack("--broker", scene.broker)
    scene.others_go_on(800)
    host.stop_stack()


def another_worker_while_a_call_sleeps(hosts, end):
    scene = Scene(hosts)
    scene.hold()
    scene.send_back()
    worker = hosts.server.worker()

    def replace():
        end(worker)
        hosts.server.another_worker(worker)
        if not Path(f"/proc/{worker}").exists():
            raise Failure("no call of the worker slept")
    scene.others_go_on(4000, meanwhile=replace)
    scene.others_go_on(800)
    scene.release()
    until(lambda: not Path(f"/proc/{worker}").exists(), "the worker to end", 20)
    scene.held_ones_go_on()
    hosts.server.stop_stack()
