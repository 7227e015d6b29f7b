"""One pass: services, bursts of load with samples between them, rest, end."""

import os
import sys
import time

from soak import level, sampling
from soak.load import Load
from soak.world import World
from testkit import wait
from testkit.case import Case
from testkit.failure import Failure
from testkit.leaks import BrokerWatch
from testkit.sidestep import Sidestep

BURST_SECONDS = 4
QUICK_BURST_SECONDS = 1.2
REST_SECONDS = 6
QUICK_REST_SECONDS = 2
# Milliseconds on a processor, for some hundreds of wake-ups by timers in two windows of the same length.
CPU_TIMES, CPU_BESIDE = 2, 20
# Wake-ups by timers that two windows of the same length may differ by.
SWITCHES_TIMES, SWITCHES_BESIDE = 1.5, 20
# In pages. The heap of a program grows and shrinks by so much without Sidestep; Envoy's is the liveliest. In a short run
# the warm-up is not over: the most connections at once, which decide how much of its tables the library has touched, are
# still to come.
SERVICE_RSS_FLOOR = 24
ROLE_RSS_FLOORS = {"envoy": 64}
SHORT_RUN_SECONDS = 900
SHORT_RUN_FLOORS = {"rss": 2048, "own_pages": 64, "shared": 64}
# From so many seconds on, a run must be able to see a leak of one unit in 1000 connections, of every metric.
FULL_RUN_SECONDS = 3600
JUDGED = ("fds", "mappings", "threads", "rss", "shared", "own_pages", "own_mappings")


class Soak:
    def __init__(self, name, seconds, flip, plain, options):
        self.name, self.seconds, self.plain, self.options = name, seconds, plain, options
        self.layer = Sidestep(f"@sidestep-soak-{os.getpid()}-{name}", flip=flip)
        self.watch = None
        self.samples, self.results = [], []

    def run(self):
        case = Case(f"soak-{self.name}", self.layer)
        try:
            self.watch = BrokerWatch(self.layer)
            world = World(case)
            load = Load(case, world, QUICK_BURST_SECONDS if self.options.quick else BURST_SECONDS)
            ends = settle(world)
            self.bursts(world, load, ends)
            self.judge()
            self.rest(world)
            self.end(world, case)
        finally:
            case.cleanup(self.options.keep)
        return self.results

    # --- load -----------------------------------------------------------------------------------

    def bursts(self, world, load, ends):
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline or len(self.samples) < level.LEAST_SAMPLES:
            load.burst()
            world.idle.ask()
            world.wait_rest(ends)
            self.wait_links(world)
            sample = {"connections": dict(load.counts), "total": load.total(), "roles": world.sample()}
            self.samples.append(sample)
            self.say(f"burst {load.number}, {load.total():,} connections: "
                     f"fds {sum(r['fds'] for r in sample['roles'].values())}, "
                     f"own pages {sum(r['own_pages'] for r in sample['roles'].values())}")
        for what in ("killed", "reloads", "detached"):
            self.record(f"{what} some", getattr(load, what) > 0, f"{getattr(load, what)} times")

    def wait_links(self, world):
        """Ended clients have let go: only links between services that live are left, and no offer waits."""
        try:
            wait.until(lambda: not self.left_behind(world), "the broker to forget ended clients", 20)
        except Failure as failure:
            raise Failure(f"{failure}: {self.left_behind(world)}") from None

    def left_behind(self, world):
        """Links with processes that have ended, and offers that wait."""
        status = self.layer.status()
        living = {pid for pids in world.roles().values() for pid in pids}
        links = [link for link in status["links"] if not set(link["pids"]) <= living]
        if not links and not status["waiting_offers"]:
            return None
        return {"links": links, "waiting_offers": status["waiting_offers"], "living": sorted(living),
                "connections": [c for c in status["connections"] if not set(c["pids"]) <= living]}

    # --- judgement ------------------------------------------------------------------------------

    def judge(self):
        for role in self.samples[0]["roles"]:
            for metric in JUDGED:
                values = [(s["total"] if role == "sidestepd" else s["connections"].get(role, 0),
                           s["roles"][role][metric]) for s in self.samples]
                verdict = level.judge(role, metric, values, self.floor(role, metric))
                sees = f"sees 1 in {verdict.sees:.0f}" if role != "idle" else "its connections stay"
                self.record(f"{role} {metric} level", verdict.level,
                            f"{verdict.second:g} -> {verdict.last:g}, allowed +{verdict.allowed:g}, {sees}")
                if self.options.seconds >= FULL_RUN_SECONDS and not self.options.quick and role != "idle":
                    self.record(f"{role} {metric}: enough connections", verdict.sees >= level.CONNECTIONS_A_UNIT, sees)

    def floor(self, role, metric):
        if self.seconds < SHORT_RUN_SECONDS and metric in SHORT_RUN_FLOORS:
            return SHORT_RUN_FLOORS[metric]
        if metric != "rss" or role == "sidestepd":
            return None
        return ROLE_RSS_FLOORS.get(role, SERVICE_RSS_FLOOR)

    # --- the end --------------------------------------------------------------------------------

    def rest(self, world):
        """With the idle connections, which are upgraded, and without anybody."""
        seconds = QUICK_REST_SECONDS if self.options.quick else REST_SECONDS
        connections = self.layer.status()["connections"]
        self.record("idle connections are upgraded", len(connections) >= world.held, f"{len(connections)} slots")
        self.wait_for_offers()
        self.compare("with idle connections", resting(world, seconds), self.plain["idle"])
        world.idle.end()
        world.idle = None
        world.wait_rest(0)
        wait.until(lambda: not self.layer.status()["connections"], "all slots to be free", 20)
        self.record("no slot taken", not any(link["slots_used"] for link in self.layer.status()["links"]), "")
        self.wait_for_offers()
        self.compare("without connections", resting(world, seconds), self.plain["none"])

    def wait_for_offers(self):
        """Offers that a process could not take back in the rush are found by the broker, which looks every five seconds."""
        wait.until(lambda: self.layer.status()["waiting_offers"] == 0, "the offers of connections that are gone to be forgotten", 40)

    def compare(self, when, now, plain):
        for role, (used, switches) in now.items():
            if role == "sidestepd":
                self.record(f"sidestepd sleeps {when}", used == 0 and switches == 0, f"{used:.1f} ms, {switches} wake-ups")
                continue
            by_kernel, switches_by_kernel = plain[role]
            allowed = by_kernel * CPU_TIMES + CPU_BESIDE, switches_by_kernel * SWITCHES_TIMES + SWITCHES_BESIDE
            self.record(f"{role} rests {when}", used <= allowed[0] and switches <= allowed[1],
                        f"{used:.1f} ms, {switches} wake-ups; on kernel TCP {by_kernel:.1f} and {switches_by_kernel}")

    def end(self, world, case):
        """Everything stops; the broker holds what it held before anybody had used it."""
        case.expect_ring("nginx", "nginx-reloaded", "envoy", "redis", "memcached", "short", "wrk", "bodies", "idle")
        for process in reversed(case.processes):
            if not process.ended:
                process.stop()
        try:
            self.watch.check_clean()
            self.record("status empty, broker as fresh", True, "")
        except Failure as failure:
            self.record("status empty, broker as fresh", False, str(failure))
        reports = case.finish()
        self.record("bytes by ring everywhere", True, ", ".join(f"{role} {r['ring']:,}" for role, r in reports.items()))

    def record(self, what, ok, detail):
        self.results.append({"pass": self.name, "check": what, "ok": bool(ok), "detail": detail})
        self.say(f"{'ok  ' if ok else 'FAIL'} {what}: {detail}")

    def say(self, text):
        print(f"{self.name}: {text}", file=sys.stderr, flush=True)


def settle(world):
    """Starts the client that idles; returns how many ends of connections there are at rest."""
    world.start_idle()
    seen = [None, 0.0]

    def steady():
        now = world.connections()
        if now != seen[0]:
            seen[:] = now, time.monotonic()
        return time.monotonic() - seen[1] > STEADY_SECONDS
    wait.until(steady, "the number of connections to settle", 20)
    return seen[0]


# The number of connections must not have changed for so long: longer than Envoy keeps its pool.
STEADY_SECONDS = 1.0


def resting(world, seconds):
    """Role -> (milliseconds on a processor, wake-ups) within the time. The first look is after what the load left behind has gone."""
    time.sleep(1)
    roles = world.roles()
    before = {role: (sampling.cpu_ms(pids), sampling.switches(pids)) for role, pids in roles.items()}
    time.sleep(seconds)
    return {role: (sampling.cpu_ms(pids) - before[role][0], sampling.switches(pids) - before[role][1])
            for role, pids in roles.items()}


def rest_of_plain(plain, quick, keep):
    """What the same services use at rest on kernel TCP, after one burst of the same load."""
    case = Case("soak-plain")
    seconds = QUICK_REST_SECONDS if quick else REST_SECONDS
    try:
        world = World(case)
        ends = settle(world)
        Load(case, world, QUICK_BURST_SECONDS).burst()
        world.idle.ask()
        world.wait_rest(ends)
        plain["idle"] = resting(world, seconds)
        world.idle.end()
        world.idle = None
        world.wait_rest(0)
        plain["none"] = resting(world, seconds)
        case.finish()
    finally:
        case.cleanup(keep)
    text = ", ".join(f"{role} {used:.1f} and {switches}" for role, (used, switches) in plain["none"].items())
    print(f"plain: milliseconds on a processor and wake-ups in {seconds} s: {text}", file=sys.stderr)
    return [{"pass": "plain", "check": "the load works on kernel TCP", "ok": True, "detail": text}]
