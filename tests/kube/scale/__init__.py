"""A cluster of 5,000 nodes at a real API server: what the agent of one node needs, how soon a changed endpoint is in force,
and what the agent costs the server.

30,000 Services have ten endpoints each. In each round an agent starts without state, follows changes, is killed, and
takes over. With --beside DIR the agents of two builds take turns. With --pods N the agents enforce NetworkPolicies, for which they read
the N pods of as many endpoints.
"""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from kube import addresses as at
from testkit import procfs, wait
from testkit.console import say
from testkit.failure import Failure

from . import server
from .crowd import ENDPOINTS, Crowd, real_slice

SERVICES, QUICK_SERVICES = 30_000, 3_000
ROUNDS, QUICK_ROUNDS = 3, 1
CHANGES, QUICK_CHANGES = 200, 50
# Pause between two changes, each of another Service than the last.
PAUSE_SECONDS = 0.05
START_SECONDS = 300
# An agent that uses no processor time for so long is idle.
IDLE_SECONDS = 0.5
CHANGE_SECONDS = 30
# What is asked for.
MOST_MEGABYTES = 400
MOST_START_SECONDS = 10
MOST_CHANGE_MS = {"p50": 10, "p99": 100}
MEGABYTE = 1_000_000


def run(testbed, options, checks):
    world = testbed.worlds[0]
    builds = {"agent": world.program, **({"beside": options.beside / "sidestep"} if options.beside else {})}
    world.end_services()
    world.options = ("--network-policies",) if options.pods else ()
    crowd = Crowd(testbed.control_plane.api, QUICK_SERVICES if options.quick else SERVICES, options.pods)
    started = time.monotonic()
    crowd.write()
    say(f"scale: {crowd.services} Services with {ENDPOINTS} endpoints each written in {time.monotonic() - started:.0f} s")
    checks.figures.update({"services": crowd.services, "endpoints of each": ENDPOINTS, "pods": crowd.pods})
    found = {build: [] for build in builds}
    for number in range(QUICK_ROUNDS if options.quick else ROUNDS):
        for build in (list(builds) if number % 2 == 0 else reversed(builds)):
            world.program = builds[build]
            found[build].append(Round(testbed, world, crowd, options).run())
            say(f"scale: round {number + 1}, {build}: {told(found[build][-1])}")
    for build, rounds in found.items():
        checks.figures[build] = rounds
        judge(checks, build, rounds)


class Round:
    """The life of one agent. The figures are as `run` returns them."""

    def __init__(self, testbed, world, crowd, options):
        self.testbed, self.world, self.crowd = testbed, world, crowd
        self.changes = QUICK_CHANGES if options.quick else CHANGES
        self.turn = 0

    def run(self):
        self.world.clear_services()
        before = self.look()
        start = self.start()
        self.settle()
        listed = self.look()
        figures = {"start_seconds": round(start, 3), "start_load": listed.since(before).figures()}
        figures["resident_megabytes"], figures["highest_megabytes"] = memory(self.world.services.pid)
        took = [self.change() for _ in range(self.changes)]
        self.settle()
        figures["change_ms"] = percentiles(took)
        figures["change_load"] = {"changes": self.changes, **self.look().since(listed).figures()}
        figures["tables_megabytes"] = tables(self.world.services.pid)
        figures["highest_megabytes"] = memory(self.world.services.pid)[1]
        figures["take_over_seconds"] = round(self.take_over(), 3)
        self.world.end_services()
        return figures

    def look(self):
        return server.look(self.testbed, self.world)

    def start(self):
        """Seconds until a connection to a Service arrives at its endpoint."""
        one, self.port = self.crowd.real[0], at.BACKEND_PORTS[0]
        for real in self.crowd.real:
            self.testbed.control_plane.api.replace(real_slice(real, self.port))
        began = time.monotonic()
        self.world.start_services()
        return self.meet(one, self.port, START_SECONDS) - began

    def change(self):
        """Milliseconds from the moment when the write's answer has been read until a connection arrives at the new endpoint."""
        time.sleep(PAUSE_SECONDS)
        self.turn += 1
        one = self.crowd.real[self.turn % len(self.crowd.real)]
        port = at.BACKEND_PORTS[1 + self.turn // len(self.crowd.real) % 2]
        with ThreadPoolExecutor(1) as thread:
            seen = thread.submit(self.meet, one, port, CHANGE_SECONDS)
            self.testbed.control_plane.api.replace(real_slice(one, port))
            written = time.monotonic()
            # The watch may be faster than the answer.
            return max(seen.result() - written, 0) * 1000

    def take_over(self):
        """Seconds from the start of an agent in a killed one's place until it has what changed meanwhile."""
        self.world.services.destroy()
        self.world.processes.remove(self.world.services)
        one, port = self.crowd.real[0], at.BACKEND_PORTS[0]
        self.testbed.control_plane.api.replace(real_slice(one, port))
        began = time.monotonic()
        self.world.start_services()
        return self.meet(one, port, START_SECONDS) - began

    def meet(self, one, port, seconds):
        """When a program in the pod has reached that endpoint of the Service."""
        probe = {"how": "tcp", "host": one["spec"]["clusterIPs"][0], "port": 80}
        seen = self.world.await_outcome(probe, at.endpoint(at.HERE[4][0], port), seconds)
        if seen is None:
            self.world.must_run()
            raise Failure(f"port {port} of {one['metadata']['name']} is not reached after {seconds} s:\n"
                          f"{self.world.services.tail()}")
        return seen

    def settle(self):
        """Until the agent has nothing more to do: what it has freed and counted belongs to what was before."""
        def is_idle():
            used = procfs.cpu_seconds(self.world.services.pid)
            time.sleep(IDLE_SECONDS)
            return procfs.cpu_seconds(self.world.services.pid) == used

        wait.until(is_idle, "the agent to be idle", START_SECONDS, self.world.must_run)


def memory(pid):
    """Megabytes: resident now, and at most so far."""
    with open(f"/proc/{pid}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return [round(int(fields[name].split()[0]) * 1024 / MEGABYTE, 1) for name in ("VmRSS", "VmHWM")]


def tables(pid):
    """Megabytes of the kernel for the tables that the process has open."""
    sizes = {}
    for number in procfs.fds(pid):
        try:
            with open(f"/proc/{pid}/fdinfo/{number}") as info:
                fields = dict(line.split(":", 1) for line in info if ":" in line)
        except OSError:
            continue  # closed meanwhile
        if "map_id" in fields:
            sizes[fields["map_id"].strip()] = int(fields["memlock"])
    return round(sum(sizes.values()) / MEGABYTE, 1)


def percentiles(values):
    steps = statistics.quantiles(values, n=100, method="inclusive")
    found = {"p50": steps[49], "p90": steps[89], "p99": steps[98], "least": min(values), "most": max(values)}
    return {name: round(value, 2) for name, value in found.items()}


def told(figures):
    change, load = figures["change_ms"], figures["start_load"]
    return (f"served {figures['start_seconds']:.2f} s after its start; {figures['highest_megabytes']:.0f} MB at most; a change in "
            f"{change['p50']:.1f} ms (p50), {change['p99']:.1f} ms (p99); taken over in {figures['take_over_seconds']:.2f} s; "
            f"for the start {load['requests']:.0f} requests, {load['bytes_received'] / MEGABYTE:.0f} MB, "
            f"{load['server_cpu_seconds']:.1f} s of the server")


def judge(checks, build, rounds):
    """The goals: the median of the rounds counts, and the highest memory."""
    def check(what, figure, most, unit):
        checks.check(figure <= most, f"{build}: {what}: {figure:.1f} {unit}, and at most {most} is the goal")

    check("memory", max(each["highest_megabytes"] for each in rounds), MOST_MEGABYTES, "MB")
    check("start", statistics.median(each["start_seconds"] for each in rounds), MOST_START_SECONDS, "s")
    for name, most in MOST_CHANGE_MS.items():
        check(f"a changed endpoint, {name}", statistics.median(each["change_ms"][name] for each in rounds), most, "ms")
