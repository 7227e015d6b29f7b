"""iptables' rules: those of a pod with a sidecar, and many more on the node."""

import ipaddress

from ..netns import inside, must
from .settings import CAPTURE, PORT, PORTS, VIP

#: Nobody's (RFC 2544): the node's rules are looked through and do nothing.
NOBODY = ipaddress.IPv4Address("198.18.0.0")
TUNNEL = 15008
#: From where a sidecar connects to its own application.
OWN = "127.0.0.6"
MASQUERADE = "0x4000/0x4000"
#: Of the node's rules: the back-end of iptables that looks through many of them the quickest.
NODE_COMMAND = "iptables-legacy-restore"


def capture():
    """What istio-iptables writes for the options in `settings.CAPTURE`, rule by rule, for IPv4."""
    user, group = CAPTURE.user, CAPTURE.group
    back = f"-o lo ! -d 127.0.0.1/32 -p tcp ! --dport {TUNNEL} -m owner"
    excluded = "".join(f"-A ISTIO_INBOUND -p tcp --dport {port} -j RETURN\n" for port in CAPTURE.not_inbound)
    return f"""\
*nat
:ISTIO_INBOUND - [0:0]
:ISTIO_REDIRECT - [0:0]
:ISTIO_IN_REDIRECT - [0:0]
:ISTIO_OUTPUT - [0:0]
-A ISTIO_INBOUND -p tcp --dport {TUNNEL} -j RETURN
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports {CAPTURE.outbound}
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports {CAPTURE.inbound}
-A PREROUTING -p tcp -j ISTIO_INBOUND
{excluded}\
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
-A OUTPUT -j ISTIO_OUTPUT
-A ISTIO_OUTPUT -o lo -s {OWN}/32 -j RETURN
-A ISTIO_OUTPUT {back} --uid-owner {user} -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --uid-owner {user} -j RETURN
-A ISTIO_OUTPUT -m owner --uid-owner {user} -j RETURN
-A ISTIO_OUTPUT {back} --gid-owner {group} -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --gid-owner {group} -j RETURN
-A ISTIO_OUTPUT -m owner --gid-owner {group} -j RETURN
-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
COMMIT
"""


#: As firewalls begin: what belongs to a known connection goes through.
KNOWN = "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"
WALKS = ("services", "connection", "packet")


def node(count, walk, address, kube_proxy):
    """Rules of the node: so many that are nobody's, and, if a kube-proxy runs there, the service's own.

    `walk` is "services": they are kube-proxy's, of other Services, and gone where no kube-proxy runs. The first packet of
    each connection that comes from a pod looks through KUBE-SERVICES, whomever it is for: a Service's address is found in
    one of its rules, a pod's in none. "connection" and "packet": a firewall's, which stay whoever balances Services.
    """
    services = count if walk == "services" else 0
    tables = nat(services, address) if kube_proxy else ""
    return tables + (firewall(count, walk) if walk != "services" else "")


def nat(count, address):
    """As kube-proxy writes it in its iptables mode; the service that is dialled is the last one, and has one pod."""
    others = (f"-A KUBE-SERVICES {to(each, PORT)} -j KUBE-MARK-MASQ\n" for each in nobodies(count))
    own = "".join(f"-A KUBE-SERVICES {to(VIP, port)} -j KUBE-SVC-{port}\n" for port in PORTS)
    chains = "".join(f":KUBE-SVC-{port} - [0:0]\n:KUBE-SEP-{port} - [0:0]\n" for port in PORTS)
    pods = "".join(
        f"-A KUBE-SVC-{port} -j KUBE-SEP-{port}\n"
        f"-A KUBE-SEP-{port} -s {address}/32 -j KUBE-MARK-MASQ\n"
        f"-A KUBE-SEP-{port} -p tcp -m tcp -j DNAT --to-destination {address}:{port}\n"
        for port in PORTS
    )
    return f"""\
*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
{chains}\
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark {MASQUERADE} -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
{"".join(others)}\
{own}\
{pods}\
COMMIT
"""


def firewall(count, walk):
    """What is forwarded looks through one address after another."""
    rules = (f"-A MANY {to(each, PORT)} -j DROP\n" for each in nobodies(count))
    known = KNOWN if walk == "connection" else ""
    return f"*filter\n:MANY - [0:0]\n{known}-A FORWARD -j MANY\n{''.join(rules)}COMMIT\n"


def nobodies(count):
    return (NOBODY + number for number in range(count))


def to(address, port):
    return f"-d {address}/32 -p tcp -m tcp --dport {port}"


def load(lab, namespace, text, limit, command="iptables-restore"):
    if not text:
        return
    # A lock of its own: what somebody else does to other namespaces is no reason to wait.
    lock = f"XTABLES_LOCKFILE={lab.folder / 'xtables.lock'}"
    must(inside(namespace, ["env", lock, command, "-w", "5"]), text, limit, "bench-mesh")
