"""The probes of a set of Services: to which addresses, from where, and how often."""

import ipaddress
import itertools
import math
from dataclasses import dataclass, replace

from kube import addresses as at
from kube.differences import BY_SOCKET
from kube.model import (
    DROPPED,
    REFUSED,
    UNSERVED,
    Expected,
    drops_external,
    expected,
    family_of,
    frontends,
    health,
    is_for_us,
    keeps_source,
    not_served,
)

# Whose packets arrive at a device of the node: a pod with its own kernel, a host outside, a pod of another node.
BY_PACKET = ("guest", "outside", "remote")
ASKERS = (*BY_SOCKET, *BY_PACKET)
# The probability that a probe misses a backend by chance.
MISS = 1e-8
# A few tries are enough for a port without endpoints, and with affinity.
SOME_TIMES = 12
# How many of the frontends are probed by packets in a round.
PACKETS_PERCENT = 35
LOOPBACK = {4: "127.0.0.1", 6: "::1"}
# A port that the Service does not have.
STRANGE_PORT = 79
# An address in the Services' network that no Service has.
NOBODY = {4: "10.96.255.254", 6: "fd00:96::ffff:fffe"}


@dataclass(frozen=True)
class Probe:
    """`place`: the kind of address. `group`: with affinity, those probes that must agree. `drops_external`:
    connections from outside of the cluster would be dropped."""

    who: str
    how: str
    host: str
    port: int
    place: str
    is_service: bool = True
    filtered: bool = False
    name: str = ""
    group: tuple = ()
    drops_external: bool = False

    @property
    def family(self):
        return family_of(self.host)

    def __str__(self):
        return f"{self.name} ({self.place}): {self.how} from {self.who} to {at.endpoint(self.host, self.port)}"


def of_all(specs, random):
    """Every probe with the result that the API requires."""
    found = [pair for name in sorted(specs) for pair in of_service(name, specs[name], random)]
    for who in ASKERS:
        found += [(Probe(who, "tcp", host, STRANGE_PORT, "nobody", False, name="nobody"), UNSERVED)
                  for host in NOBODY.values()]
    return found


def of_service(name, spec, random):
    served = frontends(spec.service)
    for frontend in served:
        for who in ASKERS:
            # Those of packets are many: a part of them in each round.
            if who in BY_PACKET and random.randrange(100) >= PACKETS_PERCENT:
                continue
            yield from of_frontend(name, spec, frontend, who, random)
    yield from strangers(name, spec.service, served, random)
    yield from of_health(name, spec)


def of_frontend(name, spec, frontend, who, random):
    says = expected(spec, frontend, who == "outside")
    for place, host in places(frontend, who):
        how = manner(frontend.protocol, host, random)
        group = (name, frontend.port.get("name"), frontend.protocol, frontend.family, says.backends)
        filtered = place == "balancer" and "loadBalancerSourceRanges" in spec.service["spec"]
        probe = Probe(who, how, host, frontend.number, place, filtered=filtered, name=name, group=group)
        if not filtered or is_comparable(probe, says):
            yield qualified(probe, with_sources(says, spec, frontend, who), spec, frontend)


def with_sources(says, spec, frontend, who):
    """Of packets it is tested whom the backend takes for the client."""
    if who not in BY_PACKET:
        return says
    keeps = keeps_source(spec, frontend, who == "outside")
    # Who is the backend itself would answer itself directly.
    own = endpoints_at(at.of_client(who))
    # What the node keeps to itself passes no rule that masquerades.
    here = endpoints_at(at.NODE.values())
    clients = says.backends - own if keeps else says.backends & here
    named = {f"{backend} from {'client' if backend in clients else 'node'}" for backend in says.backends}
    return says._replace(backends=frozenset(named))


def endpoints_at(addresses):
    return {at.endpoint(ip, port) for ip in addresses for port in at.BACKEND_PORTS}


def of_health(name, spec):
    port = spec.service["spec"].get("healthCheckNodePort")
    if port and any(family_of(ip) == 4 for ip in spec.service["spec"]["clusterIPs"]):
        # At the port of another proxy's Service only that proxy answers.
        says = Expected("served", frozenset({health(spec)}), False) if is_for_us(spec.service) else REFUSED
        yield Probe("outside", "http", at.NODE[4], port, "health", False, name=name), says


def is_comparable(probe, says):
    """Whether results can be compared: packet filters on the node itself, and without endpoints, are not tested."""
    return probe.who != "node" and says.verdict == "served"


def qualified(probe, says, spec, frontend):
    """The result for the Service, or another one if this address has its own rules."""
    if probe.filtered and not is_in_ranges(probe, spec.service["spec"]["loadBalancerSourceRanges"]):
        return probe, DROPPED
    if probe.place == "loopback" and (probe.who == "pod" or probe.family == 6):
        # No program listens there.
        return replace(probe, is_service=False, drops_external=drops_external(spec, frontend)), REFUSED
    return probe, says


def is_in_ranges(probe, ranges):
    """A family without a range is not restricted. The pod and the guest have the same address."""
    source = ipaddress.ip_address((at.OUTSIDE if probe.who == "outside" else at.POD)[probe.family])
    networks = [network for network in map(ipaddress.ip_network, ranges) if network.version == probe.family]
    return not networks or any(source in network for network in networks)


def places(frontend, who):
    """The addresses at which a frontend is probed."""
    if frontend.kind != "node":
        return [(frontend.kind, frontend.address)]
    all_places = {"node": at.NODE, "second": at.SECOND, "loopback": LOOPBACK}
    if who in BY_PACKET:
        # Packets to a loopback address arrive nowhere.
        del all_places["loopback"]
    return [(place, of_family[frontend.family]) for place, of_family in all_places.items()]


def manner(protocol, host, random):
    """One of the kinds of calls by which a program may connect."""
    how = "tcp" if protocol == "TCP" else random.choice(["udp", "udp-sendto"])
    return f"{how}-mapped" if family_of(host) == 4 and random.randrange(3) == 0 else how


def strangers(name, service, served, random):
    """Unserved addresses: a port that the Service does not have, and external addresses without effect. A Service of
    another proxy has no served port at all."""
    ips = [ip for ip in service["spec"].get("clusterIPs", ()) if ip != "None"]
    for ip, who in itertools.product(ips, ("pod", "guest", "outside")):
        place = "unserved" if served else "foreign"
        port = STRANGE_PORT if served else service["spec"]["ports"][0]["port"]
        yield Probe(who, "tcp", ip, port, place, False, name=name), UNSERVED
    for ip, who in itertools.product(not_served(service), ("pod", "guest", "outside")):
        port = service["spec"]["ports"][0]
        how = manner(port["protocol"], ip, random)
        yield Probe(who, how, ip, port["port"], "in vain", False, name=name), UNSERVED


def times(expected_one):
    """The number of tries after which every backend has been reached."""
    count = len(expected_one.backends)
    if count < 2 or expected_one.sticky:
        return SOME_TIMES
    return math.ceil(math.log(count / MISS) / -math.log(1 - 1 / count))


def as_request(probe, expected_one):
    return {"how": probe.how, "host": probe.host, "port": probe.port, "times": times(expected_one),
            "sources": probe.who in BY_PACKET}


def in_words(probe, outcomes):
    """Names the source that a backend saw as `with_sources` does."""
    def told(outcome):
        name, _, source = outcome.partition(" ")
        if probe.who not in BY_PACKET or not source or not name[-1].isdigit():
            return outcome
        source = source.removeprefix("::ffff:")
        who = "client" if source in at.of_client(probe.who) else "node" if at.is_of_node(source) else source
        return f"{name} from {who}"
    found = {}
    for outcome, count in outcomes.items():
        found[told(outcome)] = found.get(told(outcome), 0) + count
    return found
