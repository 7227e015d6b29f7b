"""A broker of its own and pairs under it, in surroundings that are made for them."""

import random

from chaos.pair import OTHER, Pair
from faults.rounds import CONNECTIONS, SLOW_SECONDS, SOME_BYTES
from testkit import wait
from testkit.failure import Failure, check
from testkit.process import Process
from testkit.report import Report
from testkit.sidestep import Sidestep


class Surrounded(Pair):
    """A pair of which each process may be started inside of something, under a release of its own, or without the
    command line (`direct`), which needs /proc itself."""

    def __init__(self, bench, directory, layers, around=None, direct=False, reports=None, ring_size=None):
        super().__init__(directory, bench.binary, layers["client"], random.Random(directory.name), CONNECTIONS)
        self.layers = layers
        self.around = around or {}
        self.direct = direct
        self.reports_at = reports or directory
        self.more = {"SIDESTEP_RING_SIZE": str(ring_size)} if ring_size else {}

    def report_path(self, role):
        return self.reports_at / f"{role}.report"

    def wrapped(self, side, argv):
        layer = self.layers[side]
        if self.direct:
            env = {**layer.env(), **layer.preload_env(self.report_path(side))}
        else:
            argv, env = layer.command(argv, self.report_path(side)), layer.env()
        return [*self.around.get(side, ()), *argv], {**env, **self.more}


class Scene:
    """A broker name of its own, with everything under it ended afterwards."""

    def __init__(self, bench, name, around_broker=(), bin_dir=None):
        self.bench = bench
        self.directory = bench.fresh(name)
        self.layer = Sidestep(f"@sidestep-faults-{name}-{bench.directory.name}", bin_dir=bin_dir)
        argv = [*around_broker, self.layer.bin_dir / "sidestepd", "--address", self.layer.broker, "--idle-exit", "0"]
        self.broker = Process("sidestepd", argv, self.directory / "broker.log", self.layer.env())
        self.pairs = []

    def __enter__(self):
        wait.until(lambda: self.status() is not None, "the broker to answer", SLOW_SECONDS, self.broker.must_run)
        return self

    def __exit__(self, *_):
        for pair in self.pairs:
            pair.destroy()
        self.layer.stop_brokers()
        self.broker.destroy()

    def status(self):
        """None: the broker does not answer."""
        try:
            return self.layer.status()
        except Failure:
            return None

    def pair(self, layers=None, **how):
        """A started pair."""
        directory = self.directory / f"pair{len(self.pairs)}"
        directory.mkdir()
        pair = Surrounded(self.bench, directory, layers or self.both(self.layer), **how)
        self.pairs.append(pair)
        pair.start()
        return pair

    @staticmethod
    def both(what):
        """The same for either end."""
        return dict.fromkeys(OTHER, what)

    def checked_load(self, **how):
        """Some bytes, then the ordinary end, with an account of every byte. Returns the pair."""
        pair = self.pair(**how)
        try:
            pair.wait_bytes(SOME_BYTES, "at first", SLOW_SECONDS)
            pair.wait_bytes(SOME_BYTES, "and on", SLOW_SECONDS)
            pair.finish()
        except Failure as failure:
            raise Failure(f"{failure}\n{pair.logs()}") from None
        return pair


def by_ring(pair):
    check(pair.ring_bytes() > 0, f"no byte by ring: {pair.reports()}")
    return f"{pair.ring_bytes():,} bytes by ring"


def by_kernel(pair, reasons):
    """Not a byte went by ring, and each process says why."""
    check(pair.ring_bytes() == 0, f"bytes by ring: {pair.reports()}")
    for side, reason in reasons.items():
        told = Report(pair.report_path(side)).reasons()
        check(told.get(reason, 0) > 0, f"the {side} does not count {reason}: {pair.reports()}")
    return "all by kernel: " + ", ".join(f"{side} {reason}" for side, reason in sorted(reasons.items()))


def finish_by_status(scene, pair):
    """The ordinary end of a pair whose reports cannot be had: the broker tells of rings."""
    pair.wait_bytes(SOME_BYTES, "and on", SLOW_SECONDS)
    pair.finish()
    wait.until(lambda: not scene.status()["processes"], "the broker to notice the end", SLOW_SECONDS)
    ring = scene.status()["totals"]["ring_rx"]
    check(ring > 0, f"no byte by ring: {scene.status()['totals']}")
    return f"{ring:,} bytes by ring"
