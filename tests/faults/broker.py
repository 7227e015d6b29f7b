"""Rounds in which system calls of the broker fail under a checked load, one after the other."""

import os
import random
import signal
from collections import namedtuple

from chaos.pair import Pair
from faults import calls, inject
from faults.rounds import CONNECTIONS, LATER_SHARE, SLOW_SECONDS, SOME_BYTES
from testkit import leaks, wait
from testkit.failure import Failure, check
from testkit.process import Process
from testkit.sidestep import Sidestep

# A broker that cannot do what it should waits before it tries again. (Some tries come with each request of the load.)
MOST_CALLS = 5000
# What a broker that cannot go on ends with: by itself, or in the loader before it has begun.
CLEAN_ENDS = {0, 1, 127}
# Rust's answer to an allocation that fails.
OUT_OF_MEMORY = -signal.SIGABRT
ALLOCATE = {"mmap", "mprotect", "mremap", "munmap", "madvise"}

Fault = namedtuple("Fault", "number name error when first count")


class Tracked:
    """A broker of its own name, under an injector."""

    def __init__(self, bench, directory, armed=False, **how):
        self.layer = Sidestep(f"@sidestep-faults-broker-{bench.directory.name}")
        self.injection = inject.Injection(bench.program, directory / "broker.calls", whose=inject.ANYBODY, armed=armed,
                                          **how)
        argv = [self.layer.bin_dir / "sidestepd", "--address", self.layer.broker, "--idle-exit", "0"]
        self.process = Process("sidestepd", self.injection.command(argv), directory / "broker.log", self.layer.env())

    def wait_ready(self):
        """Until it answers, or has ended. True: it answers."""
        wait.until(lambda: self.answers() or self.has_ended(), "the broker to answer or to end", SLOW_SECONDS)
        return not self.has_ended()

    def answers(self):
        return obeys(self.layer, "status")

    def has_ended(self):
        return self.process.popen.poll() is not None

    def disarm(self):
        self.injection.disarm()

    def check_end(self, name):
        """It has ended by itself: with a word, and not in the middle of something."""
        code = self.process.popen.wait(5)
        if name in ALLOCATE and code in (OUT_OF_MEMORY, 128 + signal.SIGABRT):
            return "out of memory"
        check(code in CLEAN_ENDS and "sidestepd: " in self.process.output(),
              f"the broker ended with {code}:\n{self.process.tail()}")
        return f"ended: {self.process.output().splitlines()[-1]}"

    def stop(self):
        for pid in self.layer.broker_pids():
            os.kill(pid, signal.SIGTERM)
        self.process.wait(10)

    def destroy(self):
        self.process.destroy()
        self.injection.close()
        self.layer.stop_brokers()


def obeys(layer, *words):
    """Whether a command of the operator succeeds, which it need not now."""
    try:
        layer.operate(*words)
    except Failure:
        return False
    return True


class PreloadedPair(Pair):
    """Under the library, but not started by `sidestep run`, which would ask the broker first."""

    def wrapped(self, side, argv):
        return argv, {**self.layer.env(), **self.layer.preload_env(self.report_path(side))}


def load(bench, tracked, directory, seed):
    """Connections begin, upgrade, are detached and attached as far as the broker is able to, and end; every byte is
    accounted for."""
    pair = PreloadedPair(directory, bench.binary, tracked.layer, random.Random(seed), CONNECTIONS)
    try:
        pair.start()
        for word in ("detach", "attach"):
            pair.wait_bytes(SOME_BYTES, f"before {word}", SLOW_SECONDS)
            obeys(tracked.layer, word, "--all")
        pair.wait_bytes(SOME_BYTES, "after attach", SLOW_SECONDS)
        pair.finish()
        return pair.ring_bytes()
    except Failure as failure:
        raise Failure(f"{failure}\n{pair.logs()}") from None
    finally:
        pair.destroy()


def record(bench):
    """How often the broker makes each call: until it answers, and in a load."""
    directory = bench.fresh("record-broker")
    tracked = Tracked(bench, directory)
    try:
        check(tracked.wait_ready(), "the broker did not start")
        begun = tracked.injection.counts()
        check(load(bench, tracked, directory, 1) > 0, "no byte by ring")
        total = tracked.injection.counts()
        tracked.stop()
    finally:
        tracked.destroy()
    return begun, {number: count - begun.get(number, 0) for number, count in total.items()
                   if count > begun.get(number, 0)}


def faults(bench, recorded):
    """All faults to try, from what was recorded."""
    begun, loaded = recorded
    found = []
    for number in sorted(begun):
        name = bench.names[number]
        if name not in calls.START:
            continue
        found += [Fault(number, name, error, "start", 1, 1) for error in calls.broker_errors(name)]
    for number, often in sorted(loaded.items()):
        name = bench.names[number]
        for error in calls.broker_errors(name):
            for when in calls.broker_whens(name, error):
                if when == "later" and often < 2 * LATER_SHARE:
                    continue
                first, count = {"first": (1, 1), "later": (often // LATER_SHARE, 1), "all": (1, inject.ALWAYS)}[when]
                found.append(Fault(number, name, error, when, first, count))
        if name in calls.EVERY_ONE:
            found += [Fault(number, name, "ENOMEM", f"at {first}", first, 1) for first in range(2, often + 1)]
    return found


def title(fault):
    return f"broker: {fault.name} {fault.error} {fault.when}"


def broker_round(bench, fault):
    """The call fails; connections are none the worse, and the broker goes on or ends with a word."""
    directory = bench.fresh("round")
    tracked = Tracked(bench, directory, armed=fault.when == "start", number=fault.number, error=fault.error,
                      first=fault.first, count=fault.count)
    try:
        if not tracked.wait_ready():
            check(fault.when == "start", f"the broker did not start:\n{tracked.process.tail()}")
            return f"at its start, {tracked.check_end(fault.name)}"
        watch = leaks.BrokerWatch(tracked.layer)
        if fault.when != "start":
            tracked.injection.arm()
        ring = load(bench, tracked, directory, fault.first)
        tracked.disarm()
        failed, told = tracked.injection.injected, after(bench, tracked, watch, fault)
        check(failed <= MOST_CALLS, f"the broker made {failed} calls that failed: it spins")
        return f"{failed} calls failed, {ring:,} bytes by ring, {told}"
    finally:
        tracked.destroy()


def after(bench, tracked, watch, fault):
    """Nothing is left of the load, and new connections upgrade: with this broker, or with the next."""
    if tracked.has_ended():
        told = tracked.check_end(fault.name)
        tracked.layer.start_broker()
    else:
        told = "it goes on"
        check(obeys(tracked.layer, "attach", "--all"), "the broker does not answer any more")
        watch.check_clean()
    directory = bench.fresh("after")
    check(load(bench, tracked, directory, 2) > 0, f"no byte by ring afterwards ({told})")
    if not tracked.has_ended():
        watch.check_clean()
        tracked.stop()
    return told
