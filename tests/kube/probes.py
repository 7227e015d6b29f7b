"""The probes of a set of Services: to which addresses, from where, and how often."""

import math
from dataclasses import dataclass, replace

from kube import addresses as at
from kube.model import DROPPED, REFUSED, UNSERVED, drops_external, expected, family_of, frontends, not_served

ASKERS = ("pod", "node")
# The probability that a probe misses a backend by chance.
MISS = 1e-8
# A few tries are enough for a port without endpoints, and with affinity.
SOME_TIMES = 12
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
        says = expected(spec, frontend)
        for who in ASKERS:
            for place, host in places(frontend):
                how = manner(frontend.protocol, host, random)
                group = (name, frontend.port.get("name"), frontend.protocol, frontend.family, says.backends)
                filtered = place == "balancer" and "loadBalancerSourceRanges" in spec.service["spec"]
                probe = Probe(who, how, host, frontend.number, place, filtered=filtered, name=name, group=group)
                if not filtered or is_comparable(probe, says):
                    yield qualified(probe, says, spec, frontend)
    yield from strangers(name, spec.service, served, random)


def is_comparable(probe, says):
    """Whether results can be compared: packet filters on the node itself, and without endpoints, are not tested."""
    return probe.who == "pod" and says.verdict == "served"


def qualified(probe, says, spec, frontend):
    """The result for the Service, or another one if this address has its own rules."""
    if probe.filtered and "10.244.0.0/16" not in spec.service["spec"]["loadBalancerSourceRanges"]:
        return probe, DROPPED
    if probe.place == "loopback" and (probe.who == "pod" or probe.family == 6):
        # No program listens there.
        return replace(probe, is_service=False, drops_external=drops_external(spec, frontend)), REFUSED
    return probe, says


def places(frontend):
    """The addresses at which a frontend is probed."""
    if frontend.kind != "node":
        return [(frontend.kind, frontend.address)]
    all_places = {"node": at.NODE, "second": at.SECOND, "loopback": LOOPBACK}
    return [(place, of_family[frontend.family]) for place, of_family in all_places.items()]


def manner(protocol, host, random):
    """One of the kinds of calls by which a program may connect."""
    how = "tcp" if protocol == "TCP" else random.choice(["udp", "udp-sendto"])
    return f"{how}-mapped" if family_of(host) == 4 and random.randrange(3) == 0 else how


def strangers(name, service, served, random):
    """Unserved addresses: a port that the Service does not have, and external addresses without effect. A Service of
    another proxy has no served port at all."""
    ips = [ip for ip in service["spec"].get("clusterIPs", ()) if ip != "None"]
    for ip in ips:
        place = "unserved" if served else "foreign"
        port = STRANGE_PORT if served else service["spec"]["ports"][0]["port"]
        yield Probe("pod", "tcp", ip, port, place, False, name=name), UNSERVED
    for ip in not_served(service):
        port = service["spec"]["ports"][0]
        how = manner(port["protocol"], ip, random)
        yield Probe("pod", how, ip, port["port"], "in vain", False, name=name), UNSERVED


def times(expected_one):
    """The number of tries after which every backend has been reached."""
    count = len(expected_one.backends)
    if count < 2 or expected_one.sticky:
        return SOME_TIMES
    return math.ceil(math.log(count / MISS) / -math.log(1 - 1 / count))


def as_request(probe, expected_one):
    return {"how": probe.how, "host": probe.host, "port": probe.port, "times": times(expected_one)}
