"""iptables' rules: those of a pod with a sidecar, and many more on the node."""

import ipaddress

from ..netns import inside, must
from .settings import CAPTURE, PORT

#: Nobody's (RFC 2544): the node's rules are looked through and do nothing.
NOBODY = ipaddress.IPv4Address("198.18.0.0")
TUNNEL = 15008
#: From where a sidecar connects to its own application.
OWN = "127.0.0.6"


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


def node(count, walk):
    """So many rules of the node that what is forwarded looks through, one address after another."""
    rules = (f"-A MANY -d {NOBODY + number}/32 -p tcp -m tcp --dport {PORT} -j DROP\n" for number in range(count))
    known = KNOWN if walk == "connection" else ""
    return f"*filter\n:MANY - [0:0]\n{known}-A FORWARD -j MANY\n{''.join(rules)}COMMIT\n"


def load(lab, namespace, text, limit):
    # A lock of its own: what somebody else does to other namespaces is no reason to wait.
    lock = f"XTABLES_LOCKFILE={lab.folder / 'xtables.lock'}"
    must(inside(namespace, ["env", lock, "iptables-restore", "-w", "5"]), text, limit, "bench-mesh")
