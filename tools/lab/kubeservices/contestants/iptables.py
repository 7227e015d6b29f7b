"""Rules as kube-proxy writes them in its iptables mode.

    KUBE-SERVICES       one rule a Service, looked through in order
      KUBE-SVC-...      one rule an endpoint, taken with a probability
        KUBE-SEP-...    DNAT

From 1,000 endpoints on kube-proxy leaves comments out. After a change it writes KUBE-SERVICES and the chains of the
Service that has changed, and leaves the other chains alone.
"""

from .. import workload
from .base import Rules
from .kubenames import PROTOCOL, digest

LARGE = 1_000
#: Where Services lead that have no chain of their own.
HOLLOW = "KUBE-MARK-MASQ"
HASH = 16

FILTER = """\
*filter
:KUBE-SERVICES - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
-A INPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A INPUT -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES
-A FORWARD -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A FORWARD -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
"""
JUMPS = """\
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
"""
#: Written at every change, as kube-proxy does.
COMMON_CHAINS = (
    ":KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n"
)
COMMON_RULES = """\
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
"""
LAST_RULE = "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n"


class Iptables(Rules):
    has_positions = True

    def argv(self):
        # A lock of its own: what somebody else does to other namespaces is no reason to wait.
        lock = f"XTABLES_LOCKFILE={self.lab.folder / 'xtables.lock'}"
        return ["env", lock, *self.command, "--noflush", "--counters", "-w", "5"]

    def everything(self):
        whole = [service for service in self.load.services if self.is_whole(service)]
        return FILTER + self.nat(self.load.services, whole, jumps=JUMPS)

    def prepare(self, old, new):
        services = [new if service.name == old.name else service for service in self.load.services]
        gone = [endpoint_chain(old, address) for address in old.endpoints if address not in new.endpoints]
        return self.nat(services, [new], gone=gone)

    def nat(self, services, whole, jumps="", gone=()):
        """The nat table: a rule for each Service, the chains of some, and chains that go."""
        comments = len(services) * self.plan.endpoints <= LARGE
        chains = [*(chain for service in whole for chain in chains_of(service)), *gone]
        rules = [service_rule(service, self.chain_of(service), comments) for service in services]
        rules += [rule for service in whole for rule in rules_of(service, comments)]
        declared = [f":{chain} - [0:0]\n" for chain in chains]
        removed = [f"-X {chain}\n" for chain in gone]
        parts = [
            "*nat\n",
            COMMON_CHAINS,
            *declared,
            jumps,
            COMMON_RULES,
            *rules,
            LAST_RULE,
            *removed,
            "COMMIT\n",
        ]
        return "".join(parts)

    def chain_of(self, service):
        return service_chain(service) if self.is_whole(service) else HOLLOW


class IptablesNft(Iptables):
    name, title = "iptables-nft", "iptables (nft)"
    command = ("iptables-nft-restore",)


class IptablesLegacy(Iptables):
    name, title = "iptables-legacy", "iptables (legacy)"
    command = ("iptables-legacy-restore",)


def identity(service):
    return f"{workload.NAMESPACE}/{service.name}"


def service_chain(service):
    return "KUBE-SVC-" + digest(identity(service), PROTOCOL, length=HASH)


def endpoint_chain(service, address):
    endpoint = f"{address}:{workload.TARGET_PORT}"
    return "KUBE-SEP-" + digest(identity(service), PROTOCOL, endpoint, length=HASH)


def chains_of(service):
    return [service_chain(service), *(endpoint_chain(service, address) for address in service.endpoints)]


def comment(words, wanted):
    return f'-m comment --comment "{words}" ' if wanted else ""


def service_rule(service, chain, comments):
    what = comment(f"{identity(service)} cluster IP", comments)
    match = f"-m {PROTOCOL} -p {PROTOCOL} -d {service.vip} --dport {workload.PORT}"
    return f"-A KUBE-SERVICES {what}{match} -j {chain}\n"


def rules_of(service, comments):
    chain, what = service_chain(service), comment(f"{identity(service)} cluster IP", comments)
    match = f"-m {PROTOCOL} -p {PROTOCOL} -d {service.vip} --dport {workload.PORT}"
    yield f"-A {chain} {what}{match} ! -s {workload.POD_RANGE} -j KUBE-MARK-MASQ\n"
    for number, address in enumerate(service.endpoints):
        what = comment(f"{identity(service)} -> {address}:{workload.TARGET_PORT}", comments)
        left = len(service.endpoints) - number
        chance = f"-m statistic --mode random --probability {1 / left:0.10f} " if left > 1 else ""
        yield f"-A {chain} {what}{chance}-j {endpoint_chain(service, address)}\n"
    for address in service.endpoints:
        chain, what = endpoint_chain(service, address), comment(identity(service), comments)
        yield f"-A {chain} {what}-s {address} -j KUBE-MARK-MASQ\n"
        target = f"{address}:{workload.TARGET_PORT}"
        yield f"-A {chain} {what}-m {PROTOCOL} -p {PROTOCOL} -j DNAT --to-destination {target}\n"
