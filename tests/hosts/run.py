#!/usr/bin/env python3
"""Two hosts, in network namespaces of their own on one cable: connections between them by the stack.

  tests/hosts/run.py [--filter TEXT] [--seed N] [--stack PATH] [--keep]

Every byte is compared, and each case says how many connections the stacks must have taken. The last line is
`hosts: N passed, N failed`.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from testkit import console
from testkit.failure import Failure
from testkit.namespaces import Namespace, link
from testkit.paths import ROOT, TARGET, built
from testkit.process import Process
from testkit.testbed import Testbed
from testkit.wait import until

PEER = Path(__file__).with_name("peer.py")
PORT = 9000
CASES = []


def case(function):
    CASES.append(function)
    return function


class Host:
    """A host: a namespace with a broker, and a stack if it is to have one."""

    def __init__(self, bed, name, number):
        self.bed = bed
        self.name = name
        self.namespace = Namespace(name)
        bed.stack.callback(self.namespace.remove)
        self.device = f"{name}0"
        self.addresses = {4: f"10.9.0.{number}", 6: f"fd09::{number}"}
        self.stack = None

    def start_broker(self):
        broker = self.broker = self.process("broker", [self.bed.programs_in / "sidestepd"])
        until(lambda: subprocess.run(self.around([self.bed.programs_in / "sidestep", "status"]),
                                     capture_output=True).returncode == 0, "the broker to answer", 10, broker.must_run)

    def command(self, *words):
        """Runs a command of `sidestep`."""
        done = subprocess.run(self.around([self.bed.programs_in / "sidestep", *words]), capture_output=True, text=True,
                              env=self.bed.env)
        if done.returncode:
            raise Failure(f"sidestep {' '.join(words)}: {done.stderr}")
        return done.stdout

    def status(self):
        return json.loads(self.command("status", "--json"))

    def start_stack(self, *options, device=None, confined=False):
        ready = self.bed.directory / f"{self.name}.ready"
        ready.unlink(missing_ok=True)
        words = [self.bed.stack_program, "--device", device or self.device, "--ready-file", ready, "--verbose"]
        if confined:
            words = ["setpriv", "--bounding-set", "-all," + ",".join(f"+{name}" for name in capabilities()), *words]
        self.stack = self.process("stack", [*words, *options])
        until(ready.exists, "the stack to serve", 20, self.stack.must_run)

    def stop_stack(self):
        """Ends the stack. Returns how many connections it has taken, and how many it has given back."""
        self.stack.stop()
        said = re.findall(r"taken (\d+), given back (\d+)", self.stack.output())
        if not said:
            raise Failure(f"the stack of {self.name} has not said what it has taken:\n{self.stack.tail()}")
        self.stack = None
        return tuple(sum(int(numbers[n]) for numbers in said) for n in (0, 1))

    def worker(self):
        """Pid of the stack's worker."""
        def first_child():
            return Path(f"/proc/{self.stack.pid}/task/{self.stack.pid}/children").read_text().split()
        return int(until(first_child, f"the stack of {self.name} to have a worker", 10, self.stack.must_run)[0])

    def kill_worker(self):
        """Ends the worker as a crash would."""
        worker = self.worker()
        os.kill(worker, signal.SIGKILL)
        until(lambda: self.worker() != worker, "another worker", 10, self.stack.must_run)

    def restored(self):
        """Number of connections that the keeper has given back in place of its workers."""
        return sum(map(int, re.findall(r"the keeper has given (\d+) connections back", self.stack.output())))

    def around(self, words):
        return self.namespace.around(words)

    def process(self, role, words):
        process = Process(f"{role} of {self.name}", self.around(words), self.bed.log(f"{role}-{self.name}"), self.bed.env)
        self.bed.started.append(process)
        return process

    def program(self, role, words):
        """A program under `sidestep run`. On a busy machine operations are too far apart for the default threshold."""
        run = [self.bed.programs_in / "sidestep", "run", "--upgrade-after", "8ops", "--"]
        return self.process(role, [*run, *words])


class Hosts(Testbed):
    """Two hosts on one cable."""

    def __init__(self, stack_program, keep):
        super().__init__(("ip", "nsenter"), "test", keep)
        self.stack_program = stack_program
        self.started = []
        self.logs = 0

    def log(self, name):
        self.logs += 1
        return self.directory / f"{self.logs:03}-{name}.log"

    def start(self):
        super().start()
        self.stack.callback(self.end_all)
        self.programs_in = built("release", "sidestep", "sidestepd", "libsidestep.so")
        self.client, self.server = Host(self, "left", 1), Host(self, "right", 2)
        link(self.client.namespace, self.client.device, self.server.namespace, self.server.device)
        for host in (self.client, self.server):
            host.namespace.ip(f"address add {host.addresses[4]}/24 dev {host.device}")
            host.namespace.ip(f"-6 address add {host.addresses[6]}/64 dev {host.device} nodad")
            host.start_broker()

    def end_all(self):
        for process in reversed(self.started):
            process.popen.terminate()
            process.destroy()

    def exchange(self, *options, family=4, port=PORT, meanwhile=None):
        """Runs the client against the server. Returns the number of bytes that came back."""
        address = self.server.addresses[family]
        server = self.server.program("server", [sys.executable, PEER, "serve", address, port])
        reached = lambda: subprocess.run(  # noqa: E731 - it is used once
            self.client.around(["bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}"]), capture_output=True).returncode == 0
        until(reached, "the server to listen", 20, server.must_run)
        client = self.client.program("client", [sys.executable, PEER, "run", address, port, *options])
        if meanwhile:
            meanwhile()
        client.wait(90)
        server.destroy()
        said = json.loads(client.output().strip().splitlines()[-1])
        if said["wrong"]:
            raise Failure(f"{len(said['wrong'])} connections went wrong: {said['wrong'][:3]}")
        return said["bytes"]


def capabilities():
    """Those that the unit of the stack permits."""
    unit = (ROOT / "dist" / "systemd" / "sidestep-stack.service").read_text()
    words = re.search(r"^CapabilityBoundingSet=(.+)$", unit, re.MULTILINE)[1].split()
    # The unit's LimitMEMLOCK, which a test cannot raise everywhere.
    return [*(word.removeprefix("CAP_").lower() for word in words), "ipc_lock"]


def exchanged(hosts, *options, **named):
    if hosts.exchange(*options, **named) == 0:
        raise Failure("not a byte came back")


def must_have_taken(host, least):
    taken, returned = host.stop_stack()
    if taken < least or not least and taken:
        raise Failure(f"the stack of {host.name} has taken {taken} connections; it must take {least}")
    if returned != taken:
        raise Failure(f"the stack of {host.name} has taken {taken} connections and given back {returned}")


@case
def kernel_at_both_ends(hosts, seed):
    exchanged(hosts, "--connections", "8", "--rounds", "100", "--seed", seed)


@case
def stack_at_both_ends(hosts, seed):
    both(hosts, lambda: exchanged(hosts, "--connections", "16", "--rounds", "400", "--seed", seed), 12)


@case
def status_tells_of_the_stack(hosts, seed):
    hosts.server.start_stack()

    def look():
        def carried():
            connections = hosts.server.status()["connections"]
            return [one for one in connections if all(way["carrier"] == "stack" for way in one["directions"])]
        until(carried, "connections by stack in `sidestep status`", 10)

    exchanged(hosts, "--connections", "4", "--rounds", "1500", "--pause", "1", "--seed", seed, meanwhile=look)
    processes = [one for one in hosts.server.status()["processes"] if one["exe"].endswith("/sidestep-stack")]
    if len(processes) != 1 or processes[0]["upgraded"] < 4 or processes[0]["ring_tx"] == 0 or not processes[0]["reasons"]:
        raise Failure(f"`sidestep status` does not tell of the stack's work: {processes}")
    must_have_taken(hosts.server, 4)


@case
def other_devices_stay_with_the_kernel(hosts, seed):
    """The stack was given a device by which no packet leaves."""
    hosts.server.namespace.ip("link add other0 type veth peer name other1")
    hosts.server.namespace.ip("link set other0 up")
    hosts.server.start_stack(device="other0")
    exchanged(hosts, "--connections", "4", "--rounds", "400", "--seed", seed)
    reasons = hosts.server.status()["reasons"]
    if reasons.get("other-device", 0) < 4:
        raise Failure(f"reasons: {reasons}")
    must_have_taken(hosts.server, 0)


@case
def stack_at_both_ends_ipv6(hosts, seed):
    both(hosts, lambda: exchanged(hosts, "--connections", "16", "--rounds", "400", "--seed", seed, family=6), 12)


def both(hosts, work, least):
    for host in (hosts.client, hosts.server):
        host.start_stack()
    work()
    for host in (hosts.client, hosts.server):
        must_have_taken(host, least)


@case
def stack_at_the_server(hosts, seed):
    hosts.server.start_stack()
    exchanged(hosts, "--connections", "16", "--rounds", "400", "--seed", seed)
    must_have_taken(hosts.server, 12)


@case
def stack_at_the_client(hosts, seed):
    hosts.client.start_stack()
    exchanged(hosts, "--connections", "16", "--rounds", "400", "--seed", seed)
    must_have_taken(hosts.client, 12)


@case
def stacks_that_come_and_go(hosts, seed):
    """Each connection is given back in mid-stream, on the same descriptor."""
    taken = []

    def in_turns():
        for _ in range(4):
            for host in (hosts.client, hosts.server):
                host.start_stack()
            time.sleep(1)  # for how long they carry: what they have taken by then is checked
            taken.extend(host.stop_stack() for host in (hosts.client, hosts.server))

    exchanged(hosts, "--connections", "16", "--rounds", "1500", "--pause", "2", "--seed", seed, meanwhile=in_turns)
    if sum(number for number, _ in taken) < 12 or any(number != returned for number, returned in taken):
        raise Failure(f"taken and given back: {taken}")


@case
def taken_again(hosts, seed):
    """What was detached goes back to the kernel, and is carried again after attach."""
    for host in (hosts.client, hosts.server):
        host.start_stack()

    def detach_and_attach():
        for host in (hosts.client, hosts.server):
            time.sleep(1.5)  # for how long they carry
            host.command("detach", "--all")
            time.sleep(0.3)  # for how long the kernel carries
            host.command("attach", "--all")

    exchanged(hosts, "--connections", "8", "--rounds", "3000", "--pause", "1", "--seed", seed, meanwhile=detach_and_attach)
    for host in (hosts.client, hosts.server):
        must_have_taken(host, 11)


@case
def few_capabilities_are_enough(hosts, seed):
    """The stack has those of its unit. Its server has a privileged port, which a give-back binds."""
    hosts.server.start_stack(confined=True)
    exchanged(hosts, "--connections", "8", "--rounds", "400", "--seed", seed, port=80)
    must_have_taken(hosts.server, 6)


LIVELY = ("--connections", "24", "--rounds", "150", "--pause", "1", "--lives")


@case
def killed_workers(hosts, seed):
    """SIGKILL at any instruction: the keeper gives the connections back, and starts another worker."""
    chosen = random.Random(int(seed))
    for host in (hosts.client, hosts.server):
        host.start_stack()

    def kill():
        for _ in range(6):
            time.sleep(chosen.uniform(0.1, 0.6))  # any moment
            chosen.choice((hosts.client, hosts.server)).kill_worker()

    exchanged(hosts, *LIVELY, "40", "--seed", seed, meanwhile=kill)
    restored = hosts.client.restored() + hosts.server.restored()
    taken = sum(host.stop_stack()[0] for host in (hosts.client, hosts.server))
    if restored < 16 or taken < 16:
        raise Failure(f"the keepers have given back {restored} connections, and the last workers have taken {taken}")


@case
def replaced_workers(hosts, seed):
    """SIGHUP: the worker gives everything back, and the next one takes new connections."""
    for host in (hosts.client, hosts.server):
        host.start_stack()

    def replace():
        for host in (hosts.client, hosts.server):
            worker = host.worker()
            time.sleep(1)  # for how long it carries
            os.kill(host.stack.pid, signal.SIGHUP)
            until(lambda host=host, worker=worker: host.worker() != worker, "another worker", 10, host.stack.must_run)

    exchanged(hosts, *LIVELY, "12", "--seed", seed, meanwhile=replace)
    for host in (hosts.client, hosts.server):
        if host.restored():
            raise Failure(f"a worker of {host.name} has left {host.restored()} connections to the keeper")
        must_have_taken(host, 16)


@case
def killed_keeper(hosts, seed):
    """The worker gives everything back, and ends."""
    hosts.server.start_stack()
    stack = hosts.server.stack

    def kill():
        worker = hosts.server.worker()
        time.sleep(2)  # for how long it carries
        os.kill(stack.pid, signal.SIGKILL)
        stack.popen.wait(10)
        until(lambda: not Path(f"/proc/{worker}").exists(), "the worker to end", 10)

    exchanged(hosts, *LIVELY, "12", "--seed", seed, meanwhile=kill)
    said = re.search(r"taken (\d+), given back (\d+)", stack.output())
    if not said or int(said[1]) < 8 or said[1] != said[2]:
        raise Failure(f"the worker has not given back what it had taken:\n{stack.tail()}")
    hosts.server.stack = None


@case
def another_broker(hosts, seed):
    """The stack gives everything back when the broker ends, and joins the next one."""
    hosts.server.start_stack()

    def exchange_broker():
        time.sleep(1)  # for how long it carries
        hosts.server.broker.stop()
        hosts.server.start_broker()

    exchanged(hosts, *LIVELY, "12", "--seed", seed, meanwhile=exchange_broker)
    until(lambda: "another one is started" in hosts.server.stack.output(), "the stack to go on", 10)
    hosts.server.stop_stack()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--stack", type=Path, default=TARGET / "debug" / "sidestep-stack")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    console.must_be_root("tests/hosts/run.py")
    console.end_by_signals()
    passed, failed = 0, 0
    for run_case in (run_case for run_case in CASES if args.filter in run_case.__name__):
        began = time.monotonic()
        try:
            with Hosts(args.stack, args.keep) as hosts:
                run_case(hosts, args.seed)
            passed += 1
            print(f"ok    {run_case.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
        except Failure as failure:
            failed += 1
            print(f"FAIL  {run_case.__name__}: {failure}", flush=True)
    print(f"hosts: {passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
