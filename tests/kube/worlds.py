"""Copies of one node, each with a pod, backends, and something that implements Services.

The copies have the same addresses, and the same name for the API server, so that a probe means the same in each.
Only the address by which a node reaches the control plane is its own.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path

from kube import addresses as at
from testkit import wait
from testkit.failure import Failure
from testkit.namespaces import Namespace, link
from testkit.process import Process

PEERS = Path(__file__).resolve().parent / "peers"
START_SECONDS = 30
# Time limit of an answer: a second, after which TCP sends its SYN again, and some more.
PATIENCE_SECONDS = 1.3
# How long conntrack keeps an entry for a flow of datagrams.
FLOW_SECONDS = 1
# Time limit for all probes of one request.
ANSWER_SECONDS = 300


class World:
    """`kind`: what implements Services here, `services` its process. Programs of pods run as `around` says."""

    def __init__(self, kind, number, control_plane, env):
        self.kind = kind
        self.env = env
        self.control_plane = control_plane
        self.number = number
        self.directory = control_plane.directory / kind
        self.namespaces = {}
        self.processes = []
        self.services = None
        self.probers = {}

    def around(self, command):
        """How the programs of pods are started."""
        return command

    # --- the network ------------------------------------------------------------------------------------------------

    def build(self):
        self.directory.mkdir()
        for name in ("node", "pod", "here", "there", "outside", "remote"):
            self.namespaces[name] = Namespace(f"{self.kind}-{name}")
        node = self.namespaces["node"]
        node.sysctl("ipv4/ip_forward", 1)
        node.sysctl("ipv6/conf/all/forwarding", 1)
        # No limit on ICMP messages, so that every refusal is reported.
        node.sysctl("ipv4/icmp_ratelimit", 0)
        node.sysctl("ipv6/icmp/ratelimit", 0)
        # Otherwise a source port that is used again would reach the backend of an earlier round.
        node.sysctl("netfilter/nf_conntrack_udp_timeout", FLOW_SECONDS)
        node.sysctl("netfilter/nf_conntrack_udp_timeout_stream", FLOW_SECONDS)
        self.connect_control_plane(node, at.CONTROL.replace(".0.1", f".0.{10 + self.number}"))
        self.connect_there(node, self.namespaces["there"])
        self.connect_pod(node, self.namespaces["pod"], "pod", at.POD, [at.POD[4]], [at.POD[6]])
        self.connect_pod(node, self.namespaces["here"], "here", at.HERE_NETWORK, at.HERE[4], at.HERE[6])
        self.connect_pod(node, self.namespaces["remote"], "remote", at.REMOTE, [at.REMOTE[4]], [at.REMOTE[6]])
        self.connect_outside(node, self.namespaces["outside"])

    def connect_control_plane(self, node, address):
        plane = self.control_plane.namespace
        link(node, "control", plane, self.kind[:12])
        plane.ip(f"link set {self.kind[:12]} master br0")
        node.ip(f"addr add {address}/{at.CONTROL_LENGTH} dev control")

    def connect_there(self, node, there):
        """The other nodes' pods, and the target of the node's default route, which drops all packets."""
        link(node, "eth0", there, "eth0")
        for family in at.NODE:
            for inside, address in ((node, at.NODE[family]), (there, at.THERE[family])):
                inside.ip(f"addr add {address}/{at.NODE_LENGTH[family]} dev eth0 {nodad(family)}")
            node.ip(f"addr add {at.SECOND[family]}/{at.length(family)} dev lo")
            node.ip(f"-{family} route add default via {at.THERE[family]}")
            there.ip(f"-{family} route add default via {at.NODE[family]}")
            for address in at.AWAY[family]:
                there.ip(f"addr add {address}/{at.length(family)} dev lo")

    def connect_outside(self, node, outside):
        """A host outside of the cluster, whose way to Services is this node."""
        link(node, "outside", outside, "eth0")
        for family in at.OUTSIDE:
            for inside, address, device in ((node, at.OUTSIDE_NODE, "outside"), (outside, at.OUTSIDE, "eth0")):
                inside.ip(f"addr add {address[family]}/{at.NODE_LENGTH[family]} dev {device} {nodad(family)}")
            outside.ip(f"-{family} route add default via {at.OUTSIDE_NODE[family]}")

    def connect_pod(self, node, pod, name, route, *of_families):
        link(node, name, pod, "eth0")
        for family, own in zip((4, 6), of_families):
            for address in own:
                pod.ip(f"addr add {address}/{at.length(family)} dev eth0 {nodad(family)}")
            gateway = at.GATEWAY[family]
            node.ip(f"addr add {gateway}/{at.length(family)} dev {name} {nodad(family)}")
            pod.ip(f"-{family} route add default via {gateway} dev eth0 onlink")
            node.ip(f"-{family} route add {route[family]} dev {name}")

    # --- programs ---------------------------------------------------------------------------------------------------

    def start(self):
        self.build()
        self.start_backends()
        self.start_services()
        prober = [sys.executable, str(PEERS / "prober.py")]
        for name in ("pod", "node"):
            self.start_prober(name, self.namespaces[name].around(self.around(prober)))
        # The agent does not see their sockets; a guest is a pod with its own kernel.
        for name, place in (("guest", "pod"), ("outside", "outside"), ("remote", "remote")):
            self.start_prober(name, self.namespaces[place].around(prober))

    def start_prober(self, name, command):
        self.probers[name] = Prober(f"{self.kind}/{name}", command, self.env)
        self.probers[name].answer()

    def start_services(self):
        """What implements Services here."""
        raise NotImplementedError

    def start_process(self, role, command):
        process = Process(f"{self.kind}-{role}", command, self.directory / f"{role}.log", self.env)
        self.processes.append(process)
        return process

    def start_backends(self):
        ports = ",".join(map(str, at.BACKEND_PORTS))
        places = {"pod": [at.POD[4], at.POD[6]], "node": [at.NODE[4], at.NODE[6]],
                  "here": at.HERE[4] + at.HERE[6], "there": at.AWAY[4] + at.AWAY[6]}
        words = [f"{self.namespaces[name].path}={','.join(own)}@{ports}" for name, own in places.items()]
        process = self.start_process("backends", [sys.executable, PEERS / "backends.py", *words])
        wait.until(lambda: "ready" in process.output(), "the backends to listen", START_SECONDS, process.must_run)

    def probe(self, name, probes, patience=PATIENCE_SECONDS):
        """What a program in the pod, or on the node, sees of each probe."""
        return self.probers[name].ask({"probes": probes, "patience": patience}) if probes else []

    def await_outcome(self, probe, wanted, seconds):
        """The time at which a program in the pod has reached that backend first; None if it has not."""
        return self.probers["pod"].ask({"await": probe, "wanted": wanted, "seconds": seconds})

    def must_run(self):
        for process in self.processes:
            process.must_run()

    def stop(self):
        for prober in self.probers.values():
            prober.stop()
        for process in reversed(self.processes):
            process.destroy()
        for namespace in self.namespaces.values():
            namespace.remove()


class Prober:
    """A program in a world's namespace that answers each line with a line. Its first line says that it has started."""

    def __init__(self, name, command, env):
        self.name = f"the prober of {name}"
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env,
                                      text=True, start_new_session=True)

    def ask(self, request):
        self.popen.stdin.write(json.dumps(request) + "\n")
        self.popen.stdin.flush()
        return self.answer()

    def answer(self):
        """Kills a prober that hangs, which ends the wait."""
        watchdog = threading.Timer(ANSWER_SECONDS, self.popen.kill)
        watchdog.start()
        try:
            line = self.popen.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise Failure(f"{self.name} gave no answer in {ANSWER_SECONDS} s, or has ended ({self.popen.poll()})")
        return json.loads(line)

    def stop(self):
        self.popen.kill()
        self.popen.wait()
        self.popen.stdin.close()
        self.popen.stdout.close()


def nodad(family):
    """Without duplicate address detection an IPv6 address can be used at once."""
    return "nodad" if family == 6 else ""
