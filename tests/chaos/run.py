#!/usr/bin/env python3
"""Kills, stops and detaches processes under load, and accounts for every byte.

Each round starts a client and a server (peer.c) that stream on several connections, often with a sidecar between them,
lets one thing go wrong and checks: a survivor has seen every byte whose write had returned, then the end of the stream,
and has ended; after everything else than a kill the streams go on and are complete. Survivors, before they end, and the
broker between the rounds must have let go of everything. Faults, chosen by the seed: SIGKILL of client, sidecar, server
or broker, SIGSTOP and SIGCONT of one of them, the broker restarted, detach and attach of all connections.

  tests/chaos/run.py                        200 rounds, a few connections each
  tests/chaos/run.py --rounds 1000 --connections 64
  tests/chaos/run.py --plain                without Sidestep: proves the test on kernel TCP, needs no build
  tests/chaos/run.py --seed 7 --round 12    one round again, as it was chosen then

The last line is `chaos: N passed, N failed`, in rounds.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chaos import faults
from chaos.pair import Chain, Pair, build
from testkit import console, leaks
from testkit.failure import Failure, check
from testkit.sidestep import Sidestep

# How often each fault is chosen, in parts; the second list needs Sidestep.
PLAIN_FAULTS = {faults.kill: 30, faults.kill_frozen: 25, faults.stop: 25}
LAYER_FAULTS = {faults.kill_broker: 10, faults.restart_broker: 10, faults.detach_attach: 10}
# After these the broker that gave the links is gone.
BROKER_FAULTS = {faults.kill_broker, faults.restart_broker}
# The full account of what the kernel holds needs both ends of a connection to be ours to stop, and nobody between.
PAIR_ONLY = {faults.kill_frozen}
# The part of the other rounds that have a sidecar.
CHAIN_SHARE = 0.5

# Bytes before the fault: on every stream of a few, or on all together. Mostly some, sometimes so few that it comes in
# the middle of an upgrade.
WARM_BYTES = (50_000, 400_000)
WARM_STREAMS = 8
EARLY_BYTES = (1, 5_000)
EARLY_SHARE = 0.05
# The part of the rounds that must have moved bytes by ring: a run that stayed on the kernel proves nothing.
RING_SHARE = 0.9
SHOW_EVERY = 20
# With so many rounds of that kind, some two-way streams must have been wholly on rings at the kill.
MIN_FROZEN_ROUNDS = 10


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--connections", type=int, default=None, help="of each round (default: 4 to 9)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices of an earlier run")
    parser.add_argument("--round", type=int, default=None, metavar="N", help="only round N of that seed")
    parser.add_argument("--plain", action="store_true", help="without Sidestep")
    parser.add_argument("--verbose", action="store_true", help="a line for every round")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON before the last line")
    parser.add_argument("--keep", action="store_true", help="keep the directories of failed rounds")
    return parser.parse_args()


class Chaos:
    """All rounds of one run."""

    def __init__(self, options):
        self.options = options
        self.seed = options.seed if options.seed is not None else random.SystemRandom().getrandbits(32)
        self.layer = None if options.plain else Sidestep(f"@sidestep-chaos-{os.getpid()}")
        self.tmp = Path(tempfile.mkdtemp(prefix="sidestep-chaos-"))
        self.watch = None
        self.results = []
        self.shm_before = leaks.shm_files()
        self.binary = self.tmp / "peer"

    def prepare(self):
        build(self.binary)
        if self.layer is not None:
            self.watch = leaks.BrokerWatch(self.layer)

    def rounds(self):
        wanted = range(self.options.rounds) if self.options.round is None else [self.options.round]
        for number in wanted:
            self.results.append(self.one_round(number))
            self.show(self.results[-1], len(wanted))

    def one_round(self, number):
        """One round from its own random state, so that it can be repeated alone."""
        choose = random.Random(f"{self.seed}:{number}")
        weights = PLAIN_FAULTS if self.layer is None else {**PLAIN_FAULTS, **LAYER_FAULTS}
        fault = choose.choices(list(weights), list(weights.values()))[0]
        kind = Chain if fault not in PAIR_ONLY and choose.random() < CHAIN_SHARE else Pair
        side = choose.choice(kind.ROLES)
        directory = self.tmp / f"round{number}"
        directory.mkdir()
        pair = kind(directory, self.binary, self.layer, choose, self.options.connections)
        if self.layer is not None:
            pair.inspect = lambda role, present: self.inspect(pair, fault, role, present)
        result = {"round": number, "fault": fault.__name__, "side": side, "pair": str(pair), "error": None,
                  "ring": 0, "full_accounts": 0, "seconds": 0}
        started = time.monotonic()
        try:
            pair.start()
            pair.wait_bytes(self.warm_bytes(pair, choose), "before the fault")
            result["full_accounts"] = fault(pair, side, choose) or 0
            if self.layer is not None:
                self.after_round(pair, fault, choose, result)
        except (Failure, OSError, subprocess.SubprocessError) as failure:
            result["error"] = f"{failure}\n{pair.logs()}"
        finally:
            pair.destroy()
        result["seconds"] = round(time.monotonic() - started, 2)
        if not (result["error"] and self.options.keep):
            shutil.rmtree(directory)
        return result

    def warm_bytes(self, pair, choose):
        early = choose.random() < EARLY_SHARE
        count = choose.randint(*(EARLY_BYTES if early else WARM_BYTES))
        return max(1, count * WARM_STREAMS // max(WARM_STREAMS, pair.connections))

    def inspect(self, pair, fault, role, present):
        """A survivor whose connections are all closed."""
        broker = None if fault in BROKER_FAULTS else self.watch.pid()
        pids = {role: progress.pid for role, progress in pair.progress.items()}
        leaks.check_survivor(role, pids[role], [pids[other] for other in present], broker)

    def after_round(self, pair, fault, choose, result):
        result["ring"] = pair.ring_bytes()
        if fault in BROKER_FAULTS:
            self.fresh_pair_upgrades(pair, choose)
        self.watch.check_clean()

    def fresh_pair_upgrades(self, pair, choose):
        """After the broker's death the next `sidestep run` starts a new one, and new connections upgrade again.

        They wait for their pairing: on a busy machine these few bytes would else be over before the broker has its turn.
        """
        directory = pair.directory / "next"
        directory.mkdir()
        fresh = Pair(directory, self.binary, self.layer.in_sync(), choose)
        try:
            fresh.start()
            fresh.wait_bytes(WARM_BYTES[0], "with the new broker")
            fresh.finish()
            check(fresh.ring_bytes() > 0, f"no byte by ring with the new broker: {fresh.reports()}")
        finally:
            fresh.destroy()

    def show(self, result, total):
        line = f"round {result['round']}: {result['fault']} {result['side']} ({result['pair']})"
        if result["error"]:
            print(f"FAIL {line}: {result['error']}\n     again: --seed {self.seed} --round {result['round']}",
                  file=sys.stderr)
        elif self.options.verbose:
            print(f"ok   {line}, {result['ring']:,} bytes by ring", file=sys.stderr)
        elif len(self.results) % SHOW_EVERY == 0:
            print(f"{len(self.results)} of {total} rounds, {self.failed()} failed", file=sys.stderr)

    def failed(self):
        return sum(result["error"] is not None for result in self.results)

    def final_checks(self):
        """What must be true after all rounds; returns what is not."""
        errors = []
        if left := leaks.processes_of(self.binary):
            errors.append(f"peers still run: {left}")
        if self.layer is not None:
            ringed, rounds = sum(result["ring"] > 0 for result in self.results), len(self.results)
            print(f"rounds with bytes by ring: {ringed} of {rounds}", file=sys.stderr)
            if ringed < RING_SHARE * rounds:
                errors.append(f"only {ringed} of {rounds} rounds moved bytes by ring")
            if self.frozen_rounds() >= MIN_FROZEN_ROUNDS and not any(r["full_accounts"] for r in self.results):
                errors.append("no two-way stream was ever fully accounted for")
            errors += self.broker_end()
        if new := leaks.shm_files() - self.shm_before:
            errors.append(f"files left in /dev/shm: {sorted(new)}")
        return errors

    def frozen_rounds(self):
        return sum(r["fault"] == faults.kill_frozen.__name__ and not r["error"] for r in self.results)

    def broker_end(self):
        try:
            self.watch.check_clean()
            self.layer.stop_brokers()
        except (Failure, OSError, subprocess.SubprocessError) as failure:
            return [str(failure)]
        return []

    def cleanup(self):
        for pid in leaks.processes_of(self.binary):
            os.kill(pid, signal.SIGKILL)
        if self.layer is not None:
            try:
                self.layer.stop_brokers()
            except Failure:
                pass  # it has been killed then, and final_checks has told
        if not (self.options.keep and self.failed()):
            shutil.rmtree(self.tmp, ignore_errors=True)


def main():
    options = parse_arguments()
    console.end_by_signals()
    started = time.monotonic()
    errors = ["no round was run"]
    chaos = None
    try:
        chaos = Chaos(options)
        print(f"seed {chaos.seed}", file=sys.stderr)
        chaos.prepare()
        chaos.rounds()
        errors = chaos.final_checks() if chaos.results else errors
    except KeyboardInterrupt:
        errors = ["interrupted"]
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        errors = [str(failure)]
    finally:
        if chaos is not None:
            chaos.cleanup()
    return summarize(chaos, errors, options, time.monotonic() - started)


def told(result):
    """What a round was about: the fault, and whom it struck, if it was one of the peers."""
    struck = result["fault"] in {fault.__name__ for fault in PLAIN_FAULTS}
    return f"{result['fault']} {result['side']}" if struck else result["fault"]


def summarize(chaos, errors, options, seconds):
    results = chaos.results if chaos is not None else []
    for error in errors:
        print(f"FAIL {error}", file=sys.stderr)
    for what, count in sorted(Counter(told(result) for result in results).items()):
        print(f"{count:5} {what}", file=sys.stderr)
    accounts = sum(result["full_accounts"] for result in results)
    print(f"{len(results)} rounds in {seconds:.0f} s; two-way streams with a full account: {accounts}", file=sys.stderr)
    failed = sum(result["error"] is not None for result in results)
    passed, failed = len(results) - failed, failed + len(errors)
    if options.json:
        print(json.dumps({"seed": chaos and chaos.seed, "seconds": round(seconds, 1), "passed": passed,
                          "failed": failed, "errors": errors, "rounds": results}))
    print(f"chaos: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
