#!/usr/bin/env python3
"""What the real `pilot-agent istio-iptables` would give to iptables-restore, for many combinations of its flags.

  tests/kube/istio_rules.py          writes istio-rules/*.txt anew, after a change of the version of Istio

The first line of each file is the flags; the next ones are what else it depends on. They are compared with what a
pilot-agent built today says (part `mesh`), and with what Sidestep's own rules mean.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kube import build
from testkit.failure import Failure
from testkit.namespaces import Namespace

HERE = Path(__file__).resolve().parent
DIRECTORY = HERE / "istio-rules"
# The arguments of the injected init container.
INJECTED = "-p 15001 -z 15006 -u 1337 -g 1337 -m REDIRECT -i '*' -x '' -b '*' -d 15090,15021,15020"
V4, V6 = "10.244.1.2/24", "fd00:244:1::2/64"
# All output of one run of iptables-restore, as pilot-agent logs it.
RESTORE = re.compile(r"Running iptables restore with: (\S+) and the following input:\n(.*?COMMIT\n)(?=\d{4}-|\Z)",
                     re.DOTALL)


@dataclass(frozen=True)
class Case:
    flags: str = INJECTED
    environment: dict = field(default_factory=dict)
    # Servers in resolv.conf.
    nameservers: tuple = ()
    # The pod's own addresses: the first one, or with --dual-stack any of them, decides if there are rules for IPv6.
    addresses: tuple = (V4,)

    def head(self):
        lines = [f"# {self.flags}".rstrip(), f"# addresses: {' '.join(self.addresses)}"]
        if self.nameservers:
            lines.append(f"# nameservers: {' '.join(self.nameservers)}")
        lines += [f"# {name}={value}" for name, value in sorted(self.environment.items())]
        return "".join(f"{line}\n" for line in lines)


def with_flags(more="", **of_case):
    """The flags of the injected container, some with other values, and further flags."""
    pairs = {**values(INJECTED), **values(more)}.items()
    return Case(flags=shlex.join(word for pair in pairs for word in pair if word is not None), **of_case)


def values(flags):
    """The value of each flag; None for flags without a value, which are the long ones."""
    words = iter(shlex.split(flags))
    return {word: None if word.startswith("--") else next(words) for word in words}


DUAL = {"addresses": (V4, V6)}
OWNERS = "ISTIO_OUTBOUND_OWNER_GROUPS"
CASES = {
    "no-flags": Case(flags=""),
    "injected": Case(),
    "ipv6": Case(addresses=(V6,)),
    "dual-stack": with_flags("--dual-stack", **DUAL),
    "dns": with_flags("--redirect-dns", nameservers=("10.96.0.10",)),
    "dns-dual-stack": with_flags("--redirect-dns --dual-stack", nameservers=("10.96.0.10", "fd00:96::a", "10.96.0.11"),
                                 **DUAL),
    "dns-all": with_flags("--redirect-dns --capture-all-dns"),
    "dns-all-dual-stack": with_flags("--redirect-dns --capture-all-dns --dual-stack", **DUAL),
    "dns-without-servers": with_flags("--redirect-dns"),
    "dns-several-owners": with_flags("-u 1337,1400 -g 1337,1500 --redirect-dns", nameservers=("10.96.0.10",)),
    "several-owners": with_flags("-u 1337,1400,0 -g 1337,1500"),
    "excluded-ports": with_flags("-o 3306,9000 -d 15090,15021,15020,22,8125"),
    "included-outbound-ports": with_flags("-i '' -q 80,443"),
    "included-ports-beside-ranges": with_flags("-i 10.96.0.0/16 -q 80,443 -x 10.96.7.0/24 -o 443"),
    "included-ranges": with_flags("-i 10.96.0.0/16,10.244.0.0/16,fd00:96::/108 --dual-stack", **DUAL),
    "included-loopback": with_flags("-i 127.0.0.0/8,10.96.0.0/16"),
    "included-loopback-ipv6": with_flags("-i ::1/128,fd00:96::/108 --dual-stack", **DUAL),
    "excluded-ranges": with_flags("-x 10.0.0.0/8,192.168.7.7/32,fd00:99::/64 --dual-stack", **DUAL),
    "excluded-interfaces": with_flags("-c eth1,net2"),
    "inbound-list": with_flags("-b 80,8080 -d ''"),
    "inbound-list-with-excluded": with_flags("-b 80,8080 -d 8080"),
    "inbound-none": with_flags("-b ''"),
    "outbound-none": with_flags("-i ''"),
    "other-ports": with_flags("-p 16001 -z 16006 -e 16008"),
    "owner-groups": with_flags(environment={OWNERS: "101,202"}),
    "owner-groups-excluded": with_flags(environment={f"{OWNERS}_EXCLUDE": "303,404"}),
    "owner-groups-dns-dual-stack": with_flags("--redirect-dns --capture-all-dns --dual-stack",
                                              environment={OWNERS: "101,202"}, **DUAL),
    "virtual-interfaces": with_flags("-k tap0,vnet1"),
    "virtual-interfaces-ranges": with_flags("-k tap0,vnet1 -i 10.96.0.0/16,10.244.0.0/16"),
    "loopback-range": with_flags(environment={"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "127.0.0.0/8"}),
    "everything": with_flags(
        "-u 1337,1400 -g 1337,1500 -i 10.96.0.0/16,fd00:96::/108 -x 10.96.7.0/24,fd00:96::7:0/112 -q 443,8443 "
        "-o 3306,9000 -d 15090,15021,15020,22 -c eth1 -k tap0 --redirect-dns --dual-stack",
        nameservers=("10.96.0.10", "fd00:96::a"), environment={f"{OWNERS}_EXCLUDE": "303"}, **DUAL),
}


class Rules:
    """Runs pilot-agent in a namespace that has the case's addresses, and with a resolv.conf of its own."""

    def __init__(self, program=None):
        self.program = program or build.BINARIES / "pilot-agent"

    def text(self, case):
        namespace = Namespace("rules")
        try:
            for address in case.addresses:
                namespace.ip(f"addr add {address} dev lo")
            return case.head() + self.restored(namespace, case)
        finally:
            namespace.remove()

    def restored(self, namespace, case):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as resolver:
            resolver.write("".join(f"nameserver {server}\n" for server in case.nameservers))
            resolver.flush()
            bound = 'mount --bind "$1" /etc/resolv.conf; shift; exec "$@"'
            command = namespace.around(["unshare", "--mount", "sh", "-ec", bound, "sh", resolver.name, self.program,
                                        "istio-iptables", "--dry-run", *shlex.split(case.flags)])
            done = subprocess.run(command, env={"PATH": os.environ["PATH"], **case.environment},
                                  capture_output=True, text=True)
        output = done.stdout + done.stderr
        if done.returncode != 0:
            raise Failure(f"pilot-agent istio-iptables {case.flags}: exit code {done.returncode}:\n{output}")
        found = RESTORE.findall(output)
        if not found:
            raise Failure(f"pilot-agent istio-iptables {case.flags} restored nothing:\n{output}")
        return "".join(f"# {program}\n{rules}" for program, rules in found)


def path(name):
    return DIRECTORY / f"{name}.txt"


def main():
    build.build(modules=(build.ISTIO,))
    rules = Rules()
    for old in DIRECTORY.glob("*.txt"):
        old.unlink()
    for name, case in CASES.items():
        path(name).write_text(rules.text(case))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"tests/kube/istio_rules.py: {failure}")
