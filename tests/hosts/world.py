"""Two hosts: network namespaces of their own on one cable, each with a broker, and a stack if it is to have one."""

import json
import re
import subprocess
import sys
from pathlib import Path

from testkit.failure import Failure
from testkit.namespaces import Namespace, link
from testkit.paths import ROOT, built
from testkit.process import Process
from testkit.testbed import Testbed
from testkit.wait import until

PEER = Path(__file__).with_name("peer.py")
PORT = 9000


def capabilities():
    """Those that the unit of the stack permits."""
    unit = (ROOT / "dist" / "systemd" / "sidestep-stack.service").read_text()
    words = re.search(r"^CapabilityBoundingSet=(.+)$", unit, re.MULTILINE)[1].split()
    # The unit's LimitMEMLOCK, which a test cannot raise everywhere.
    return [*(word.removeprefix("CAP_").lower() for word in words), "ipc_lock"]


def arguments(pid):
    """Those of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


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

    def start_broker(self, *options):
        broker = self.broker = self.process("broker", [self.bed.programs_in / "sidestepd", *options])
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

    def start_stack(self, *options, device=None, confined=False, under=()):
        """`under`: a command that starts the stack."""
        ready = self.bed.directory / f"{self.name}.ready"
        ready.unlink(missing_ok=True)
        words = [self.bed.stack_program, "--device", device or self.device, "--ready-file", ready, "--verbose"]
        if confined:
            words = ["setpriv", "--bounding-set", "-all," + ",".join(f"+{name}" for name in capabilities()), *words]
        self.stack = self.process("stack", [*under, *words, *options])
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
        def workers():
            return [child for child in self.stack_children() if b"--worker" in arguments(child)]
        return until(workers, f"the stack of {self.name} to have a worker", 10, self.stack.must_run)[0]

    def stack_children(self):
        """Pids of the keeper's worker and standby."""
        return [int(pid) for pid in Path(f"/proc/{self.stack.pid}/task/{self.stack.pid}/children").read_text().split()]

    def another_worker(self, than):
        """Waits for one that takes the place of this one."""
        until(lambda: self.worker() != than, "another worker", 10, self.stack.must_run)

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


class Pod(Host):
    """A network namespace behind a host, which routes for it. Its programs use the host's broker, by a path."""

    def __init__(self, bed, name, host, other, broker, number=1):
        super().__init__(bed, name, 0)
        self.broker_path = broker
        self.addresses = {4: f"10.9.{number}.2", 6: f"fd09:{number}::2"}
        link(host.namespace, f"pods{number}", self.namespace, "eth0")
        for family, net, length in (("-4", f"10.9.{number}.", 24), ("-6", f"fd09:{number}::", 64)):
            nodad = "nodad" if family == "-6" else ""
            host.namespace.ip(f"{family} address add {net}1/{length} dev pods{number} {nodad}")
            self.namespace.ip(f"{family} address add {net}2/{length} dev eth0 {nodad}")
            self.namespace.ip(f"{family} route add default via {net}1")
            via = host.addresses[int(family[1])]
            other.namespace.ip(f"{family} route add {net}{'0' if family == '-4' else ''}/{length} via {via}")
        host.namespace.sysctl("ipv4/ip_forward", 1)
        host.namespace.sysctl("ipv6/conf/all/forwarding", 1)

    def around(self, words):
        return super().around(["env", f"SIDESTEP_BROKER={self.broker_path}", *words])


class Hosts(Testbed):
    """Two hosts on one cable."""

    def __init__(self, stack_program, keep, prefix=""):
        """`prefix`: of the names of its namespaces, where there is another bed at the same time."""
        super().__init__(("ip", "nsenter"), "test", keep)
        self.prefix = prefix
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
        self.client, self.server = Host(self, f"{self.prefix}left", 1), Host(self, f"{self.prefix}right", 2)
        self.cable()
        for host in (self.client, self.server):
            host.namespace.ip(f"address add {host.addresses[4]}/24 dev {host.device}")
            host.namespace.ip(f"-6 address add {host.addresses[6]}/64 dev {host.device} nodad")
            host.start_broker("--idle-exit", "0")

    def cable(self):
        link(self.client.namespace, self.client.device, self.server.namespace, self.server.device)

    def end_all(self):
        for process in reversed(self.started):
            process.popen.terminate()
            process.destroy()

    def exchange(self, *options, family=4, port=PORT, client=None, server=None, dialled=None, bound=None, serve=(), meanwhile=None):
        """Runs the client against the server, by its own address or `dialled`. Returns the number of bytes that came back."""
        calling, serving = client or self.client, server or self.server
        address = serving.addresses[family]
        server = serving.program("server", [sys.executable, PEER, "serve", bound or address, port, *serve])
        self.serving = server
        to = dialled or address
        reached = lambda: subprocess.run(  # noqa: E731 - it is used once
            calling.around(["bash", "-c", f"exec 3<>/dev/tcp/{to}/{port}"]), capture_output=True).returncode == 0
        until(reached, "the server to listen", 20, server.must_run)
        client = self.asking = calling.program("client", [sys.executable, PEER, "run", to, port, *options])
        if meanwhile:
            meanwhile()
        client.wait(90)
        server.destroy()
        said = self.said = json.loads(client.output().strip().splitlines()[-1])
        if said["wrong"]:
            raise Failure(f"{len(said['wrong'])} connections went wrong: {said['wrong'][:3]}")
        return said["bytes"]
