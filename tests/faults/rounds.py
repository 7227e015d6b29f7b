"""Rounds in which system calls of the library fail under a checked load."""

import random
import shutil
from collections import namedtuple

from chaos.pair import MODES, OTHER, Pair
from faults import calls, inject
from faults.outcome import NotTried
from testkit import leaks, wait
from testkit.failure import Failure, check
from testkit.sidestep import Sidestep

CONNECTIONS = 4
# Bytes on every stream before and after each thing that happens. With all calls failing a round may be slow.
SOME_BYTES = 20_000
SLOW_SECONDS = 30
# Half of the rounds switch their connections all the time, so that every way back is gone too.
FLIP_BYTES = 30_000
# "later": at about this part of the calls that a round without failures makes.
LATER_SHARE = 3
# ... and of the records for the broker, of which there are at least a greeting, a doorbell and four offers, the third.
LATER_RECORD = 3

# Loads in which a call that is made only now and then is waited for.
ATTEMPTS = 12


class Place(namedtuple("Place", "mode flip slow")):
    """Where a call is made: kind of program, bytes between switches (0: none), whether threads are made to collide."""

    def __str__(self):
        return self.mode + (", switching" if self.flip else "") + (", colliding" if self.slow else "")


PLACES = [Place(mode, flip, False) for mode in MODES for flip in (0, FLIP_BYTES)] + [Place("block", 0, True)]

Fault = namedtuple("Fault", "number name fds error when place first count")


class InjectedPair(Pair):
    """Both peers, each under an injector of its own."""

    def __init__(self, directory, binary, layer, mode, seed, injections):
        super().__init__(directory, binary, layer, random.Random(seed), CONNECTIONS)
        self.modes = dict.fromkeys(OTHER, mode)
        self.injections = injections

    def wrapped(self, side, argv):
        argv, env = super().wrapped(side, argv)
        injection = self.injections.get(side)
        return (injection.command(argv) if injection else argv), env


class Bench:
    """What all rounds share: the programs, one broker name and its watch."""

    def __init__(self, directory, binary, program):
        self.directory = directory
        self.binary = binary
        self.program = program
        self.layers = {flip: Sidestep(f"@sidestep-faults-{directory.name}", flip=flip) for flip in (0, FLIP_BYTES)}
        self.layer = self.layers[0]
        self.watch = None
        self.names = calls.names()

    def number(self, name):
        return next(number for number, its in self.names.items() if its == name)

    def start_broker(self):
        self.watch = leaks.BrokerWatch(self.layer)

    def stop_broker(self):
        self.layer.stop_brokers()
        self.watch = None

    def sees_ring(self):
        """Whether the broker knows of a connection with bytes by ring."""
        return any(direction["ring_bytes"] for connection in self.layer.status()["connections"]
                   for direction in connection["directions"])

    def fresh(self, name):
        """An empty directory for a round."""
        path = self.directory / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path


def load(bench, pair, switch, upgraded=False):
    """The checked load: upgrades, goes back, upgrades again, ends. Every byte is accounted for. `upgraded`: it does not
    go on before some connection has upgraded."""
    pair.start()
    pair.wait_bytes(SOME_BYTES, "at first", SLOW_SECONDS)
    if upgraded:
        wait.until(bench.sees_ring, "a connection to upgrade", SLOW_SECONDS, pair.must_run)
        pair.wait_bytes(SOME_BYTES, "once upgraded", SLOW_SECONDS)
    if switch:
        try:
            bench.layer.operate("detach", "--all")
            pair.wait_bytes(SOME_BYTES, "after detach", SLOW_SECONDS)
        finally:
            bench.layer.operate("attach", "--all")
        pair.wait_bytes(SOME_BYTES, "after attach", SLOW_SECONDS)
    pair.finish()


# --- the library ------------------------------------------------------------------------------------------------

def injected_pair(bench, directory, place, seed, **how):
    """A pair of which each end has an injection of this kind; the pair and its injections."""
    slow = bench.number(calls.SLOW) if place.slow else -1
    injections = {side: inject.Injection(bench.program, directory / f"{side}.calls", slow=slow, **how)
                  for side in OTHER}
    return InjectedPair(directory, bench.binary, bench.layers[place.flip], place.mode, seed, injections), injections


def record(bench, place):
    """Which calls of its own the library makes under the load, and how often at the end that makes fewer of them."""
    pair, counters = injected_pair(bench, bench.fresh("record"), place, 1)
    try:
        load(bench, pair, switch=place.flip == 0, upgraded=not place.slow)
        check(place.slow or pair.ring_bytes() > 0, f"no byte by ring: {pair.reports()}")
        made = [counter.counts() for counter in counters.values()]
    finally:
        pair.destroy()
    bench.watch.check_clean()
    return {number: min(m[number] for m in made if number in m) for number in made[0].keys() | made[1].keys()}


def places_of(name, number, recorded):
    """Where to make the call fail: in every mode where it is made; where threads collide if that is what it takes."""
    if name in calls.COLLISIONS:
        return [place for place in recorded if place.slow]
    return [place for place in recorded if not place.slow and number in recorded[place]]


def library_faults(bench, recorded):
    """All faults to try, from what was recorded as {place: {number: how often}}."""
    faults = []
    for number in sorted({number for counts in recorded.values() for number in counts}):
        name = bench.names[number]
        places = places_of(name, number, recorded)
        for fds, error, when in calls.rounds_of(name):
            for place in places[len(faults) % 2::2]:
                often = recorded[place].get(number, 1)
                if when == "later" and (often < 2 * LATER_SHARE or name in calls.NOT_LATER):
                    continue  # no call is surely made after the first
                later = often // LATER_SHARE if fds != "own" else LATER_RECORD
                first, count = {"first": (1, 1), "later": (later, 1), "all": (1, inject.ALWAYS)}[when]
                faults.append(Fault(number, name, fds, error, when, place, first, count))
    return faults


def title(fault):
    of = "" if fault.fds == "any" else f" of the {'library' if fault.fds == 'own' else 'program'}'s"
    return f"library: {fault.name}{of} {fault.error} {fault.when} ({fault.place})"


def library_round(bench, fault):
    """The call fails at both ends, or at the one that makes it."""
    for attempt in range(ATTEMPTS):
        failed, told = library_load(bench, fault, attempt + 1)
        if failed:
            return told
    raise NotTried(f"the call was not made in {ATTEMPTS} loads, so it never failed")


def library_load(bench, fault, seed):
    """One load: how many calls have failed, and what to tell of it."""
    # Loads differ: what was not made so often the last time is tried for earlier.
    first = max(min(fault.first, 2), fault.first >> seed - 1)
    pair, injections = injected_pair(bench, bench.fresh("round"), fault.place, seed, number=fault.number,
                                     error=fault.error, first=first, count=fault.count, fds=fault.fds)
    try:
        load(bench, pair, switch=fault.place.flip == 0)
        bench.watch.check_clean()
    except Failure as failure:
        raise Failure(f"{failure}\n{pair.logs()}") from None
    finally:
        pair.destroy()
    failed = sum(injection.injected for injection in injections.values())
    return failed, f"{failed} calls failed, {pair.ring_bytes():,} bytes by ring"
