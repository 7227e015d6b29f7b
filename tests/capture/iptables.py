"""Pods whose connections iptables redirects, by the rules that istio-iptables writes."""

from capture.worlds import EXCLUDED, World
from testkit.commands import run
from testkit.paths import program

# What differs between the families: the program, the loopback, and from where Envoy dials its own pod.
FAMILIES = (("iptables-legacy-restore", "127.0.0.1/32", "127.0.0.6/32"),
            ("ip6tables-legacy-restore", "::1/128", "::6/128"))
OWNERS = ("--uid-owner 1337", "--gid-owner 1337")
DNS_PORT = 15053


class Iptables(World):
    def __init__(self, testbed):
        super().__init__(testbed, "twin")

    def capture(self, pod, dns=False):
        pod.namespace.ip("-6 addr add ::6/128 dev lo nodad")
        for command, loopback, passthrough in FAMILIES:
            run(*pod.namespace.around([program(command)]), stdin=nat(loopback, passthrough, dns))


def nat(loopback, passthrough, dns):
    chains = ("ISTIO_INBOUND", "ISTIO_IN_REDIRECT", "ISTIO_OUTPUT", "ISTIO_REDIRECT")
    rules = [
        "ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001",
        "ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006",
        "PREROUTING -p tcp -j ISTIO_INBOUND",
        "ISTIO_INBOUND -p tcp --dport 15008 -j RETURN",
        *(f"ISTIO_INBOUND -p tcp --dport {port} -j RETURN" for port in EXCLUDED),
        "ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT",
        *(dns_rules(passthrough) if dns else []),
        "OUTPUT -j ISTIO_OUTPUT",
        f"ISTIO_OUTPUT -o lo -s {passthrough} -j RETURN",
        *(rule for owner in OWNERS for rule in owner_rules(owner, loopback, dns)),
        *(["ISTIO_OUTPUT -p tcp --dport 53 -j REDIRECT --to-ports 15053"] if dns else []),
        f"ISTIO_OUTPUT -d {loopback} -j RETURN",
        "ISTIO_OUTPUT -j ISTIO_REDIRECT",
    ]
    lines = ["*nat", *(f":{chain} - [0:0]" for chain in chains), *(f"-A {rule}" for rule in rules), "COMMIT", ""]
    return "\n".join(lines)


def owner_rules(owner, loopback, dns):
    inside = "-o lo -p tcp ! --dport 53" if dns else "-o lo"
    return [
        f"ISTIO_OUTPUT -o lo ! -d {loopback} -p tcp ! --dport 15008 -m owner {owner} -j ISTIO_IN_REDIRECT",
        f"ISTIO_OUTPUT {inside} -m owner ! {owner} -j RETURN",
        f"ISTIO_OUTPUT -m owner {owner} -j RETURN",
    ]


def dns_rules(_passthrough):
    exceptions = [f"OUTPUT -p udp --dport 53 -m owner {owner} -j RETURN" for owner in OWNERS]
    return [*exceptions, f"OUTPUT -p udp --dport 53 -j REDIRECT --to-ports {DNS_PORT}"]
