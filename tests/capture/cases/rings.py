"""A program and its proxy that both run under `sidestep run` meet in shared memory, though one was dialled for the other.

Both hops of a request that may: from a program to its Envoy, and from an Envoy to its program. What goes from pod to pod is
between two network namespaces and stays in the kernel.
"""

import json

from capture import clients
from capture.envoy import Envoy
from capture.pods import PEERS, PYTHON
from capture.tasks import PROGRAM as OWNER
from capture.tasks import PROXY
from capture.worlds import PORT
from testkit import paths, wait
from testkit.failure import check
from testkit.process import Process
from testkit.testbed import Setup

ALLOWED = f"[[allow]]\nuids = [{OWNER[0]}, {PROXY[0]}]\n"
CLIENT, SERVER = ("ringcli", 30), ("ringsrv", 31)
COUNT = 300
# Of all bytes: an upgrade comes after some.
MOST_BY_RING = 0.9
# The library is whole only if it is built for release.
RELEASE = paths.TARGET / "release"
PARTS = ("sidestep", "sidestepd", "libsidestep.so")
# However far apart: by default a machine on which each message waits long for a processor has no upgrade.
UPGRADE_AFTER = "8ops"


class Rings(Setup):
    """Two captured pods, all programs of which run with the library, and their broker."""

    def __init__(self, world):
        super().__init__()
        paths.built("release", *PARTS)
        self.world = world
        self.directory = world.directory / "rings"
        self.address = self.directory / "broker"
        self.envoys = {}

    def start(self):
        self.directory.mkdir()
        config = self.directory / "sidestep.toml"
        config.write_text(ALLOWED)
        # Not of any pod, as a node's broker is.
        words = [RELEASE / "sidestepd", "--address", self.address, "--config", config, "--idle-exit", "0"]
        broker = Process("broker", words, self.directory / "broker.log", self.world.env)
        self.stack.callback(end, broker)
        wait.until(self.address.is_socket, "the broker to listen", 20, broker.must_run)
        self.client, self.server = self.pod(*CLIENT), self.pod(*SERVER)
        program = [*self.around(self.server, "program"), PYTHON, PEERS / "program.py", "server", PORT]
        self.server.wait_listening(self.server.spawn("program", program), PORT)
        for pod in (self.client, self.server):
            self.world.capture(pod)
            self.envoys[pod] = Envoy(pod, PORT, self.around(pod, "envoy")).start()

    def pod(self, name, number):
        pod = self.world.pod(name, number)
        self.stack.callback(self.remove, pod)
        return pod

    def remove(self, pod):
        self.world.remove(pod.name)
        if pod in self.envoys:
            self.envoys[pod].forget()

    def around(self, pod, program):
        """What stands before the command of a program: its report is its own."""
        report = self.report(pod, program)
        report.touch()
        report.chmod(0o666)
        settings = ["--upgrade-after", UPGRADE_AFTER, "--report", report]
        return ["env", f"SIDESTEP_BROKER={self.address}", RELEASE / "sidestep", "run", *settings, "--"]

    def report(self, pod, program):
        return self.directory / f"{pod.name}-{program}.jsonl"

    def ask(self, host):
        """What a program of the client's pod met, and what its library says."""
        name = f"asker-{clients.family_of(host).name}"
        words = [*self.around(self.client, name), PYTHON, PEERS / "asker.py", host, PORT, COUNT]
        asker = self.client.spawn(name, words)
        asker.wait(60)
        self.client.processes.remove(asker)
        return json.loads(asker.output().splitlines()[-1]), self.moved(self.client, name)

    def moved(self, pod, program):
        """Bytes that went by ring and by the kernel, of all its processes; each tells at its end."""
        lines = [json.loads(line) for line in self.report(pod, program).read_text().splitlines()]
        check(lines, f"{program} of {pod.name} has reported nothing")
        return tuple(sum(one[f"{way}_rx"] + one[f"{way}_tx"] for one in lines) for way in ("ring", "kernel"))

    def end(self, pod):
        """Ends the pod's Envoy in order; what it has moved."""
        envoy = self.envoys.pop(pod)
        envoy.stop()
        return self.moved(pod, "envoy")


def end(broker):
    """By itself: whoever ends a program with its family leaves brokers alone."""
    broker.popen.terminate()
    broker.popen.wait(20)


def test_program_and_proxy(testbed):
    """All bytes are right, and nearly all of them went by ring, on the way to Envoy and on the way from Envoy."""
    with Rings(testbed.ours) as rings:
        total = by_ring = 0
        for family in (4, 6):
            host = rings.server.ip[family]
            met, (ring, kernel) = rings.ask(host)
            check((met["name"], met["wrong"]) == ("server", 0), f"IPv{family}: {met}")
            check(met["peer"] == [host, PORT] and clients.is_proxied(met), f"IPv{family}: {met}")
            check(ring + kernel == met["bytes"], f"IPv{family}: {ring} bytes by ring, {kernel} by kernel of {met['bytes']}")
            check(ring >= MOST_BY_RING * met["bytes"], f"IPv{family}: outbound, {ring} of {met['bytes']} bytes went by ring")
            total, by_ring = total + met["bytes"], by_ring + ring
        ring, kernel = rings.end(rings.client)
        check(ring == by_ring, f"the client's Envoy: {ring} bytes by ring; the programs: {by_ring}")
        check(kernel >= total, f"from pod to pod: {kernel} bytes by kernel, of {total}")
        ring, kernel = rings.end(rings.server)
        check(ring >= MOST_BY_RING * total, f"inbound: {ring} of {total} bytes went by ring")
        check(kernel >= total, f"from pod to pod: {kernel} bytes by kernel, of {total}")
