"""Two hosts on a wire that loses, doubles, reorders, delays, damages and cuts segments (tests/wire)."""

import json
import re

from hosts.world import Hosts
from testkit import offload
from testkit.namespaces import Namespace, link
from testkit.paths import built
from testkit.process import Process
from testkit.testbed import Setup


class Wire:
    """A network namespace between the hosts, in which a program forwards frames."""

    def __init__(self, bed):
        self.bed = bed
        self.namespace = Namespace(f"{bed.prefix}wire")
        bed.stack.callback(self.namespace.remove)
        self.process = None
        self.devices = []

    def connect(self, host):
        """Gives the host a device whose other end is the wire. No host may leave checksums to its device: damage would stay
        unseen."""
        device = f"wire{len(self.devices)}"
        link(host.namespace, host.device, self.namespace, device)
        offload.turn_off(host.namespace, host.device)
        offload.turn_off(self.namespace, device)
        self.devices.append(device)

    def start(self, seed, rates):
        words = [built("debug", "wire") / "wire", *self.devices, "--seed", seed]
        for name, rate in rates.items():
            words += [f"--{name}", rate]
        self.process = Process("the wire", self.namespace.around(words), self.bed.log("wire"), self.bed.env)
        self.bed.started.append(self.process)
        self.process.wait_output(re.compile("ready"))

    def stop(self):
        """What it has done."""
        self.process.stop()
        return json.loads(self.process.output().splitlines()[-1])


class WiredHosts(Hosts):
    """Two hosts on such a wire."""

    def cable(self):
        self.wire = Wire(self)
        for host in (self.client, self.server):
            self.wire.connect(host)


class Race(Setup):
    """Two such pairs of hosts side by side: one for the kernel alone, one for the stack. A busy machine slows down both."""

    def __init__(self, stack_program, keep):
        super().__init__()
        self.kernel, self.stacks = (WiredHosts(stack_program, keep, prefix) for prefix in ("k", "s"))

    def start(self):
        for hosts in (self.kernel, self.stacks):
            self.stack.enter_context(hosts)
