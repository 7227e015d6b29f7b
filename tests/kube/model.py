"""What the Kubernetes API requires a node to do for a Service, computed from its objects alone.

It is the third opinion next to kube-proxy and Sidestep: where those two agree by having the same defect, it does not.
"""

from collections import namedtuple

from kube import addresses as at

PROXY_NAME = "service.kubernetes.io/service-proxy-name"
SERVICE_NAME = "kubernetes.io/service-name"

# A Service and the slices that belong to it, as the API server has them.
Spec = namedtuple("Spec", "service slices")
# An address at which a port of a Service is served. `kind`: cluster, external, balancer, node.
Frontend = namedtuple("Frontend", "kind address number protocol family port")
# `verdict`: served, refused (no endpoint serves), dropped (endpoints serve, but not for this node), unserved (no node
# handles it: the packet is routed as any other, and dropped).
Expected = namedtuple("Expected", "verdict backends sticky")

REFUSED = Expected("refused", frozenset(), False)
DROPPED = Expected("dropped", frozenset(), False)
UNSERVED = Expected("unserved", frozenset(), False)


def family_of(address):
    return 6 if ":" in address else 4


def is_for_us(service):
    """Whether a node implements it at all."""
    foreign = PROXY_NAME in service["metadata"].get("labels", {})
    return not foreign and service["spec"]["type"] != "ExternalName" and service["spec"].get("clusterIP") != "None"


def frontends(service):
    """The addresses of its ports; the address of a NodePort is None, since it is any of the node's.

    A Service is there in the families in which it has a ClusterIP; addresses of the other one are somebody else's.
    """
    if not is_for_us(service):
        return []
    found = []
    spec = service["spec"]
    families = sorted({family_of(ip) for ip in spec["clusterIPs"]})
    for port in spec["ports"]:
        for kind, address in addressed(service):
            if family_of(address) in families:
                found.append(Frontend(kind, address, port["port"], port["protocol"], family_of(address), port))
        for family in families if port.get("nodePort") else ():
            found.append(Frontend("node", None, port["nodePort"], port["protocol"], family, port))
    return found


def not_served(service):
    """The external addresses that have no effect: the Service has no ClusterIP of their family."""
    families = {family_of(ip) for ip in service["spec"].get("clusterIPs", ()) if ip != "None"}
    return [address for kind, address in addressed(service)
            if kind != "cluster" and (family_of(address) not in families or not is_for_us(service))]


def addressed(service):
    spec = service["spec"]
    yield from (("cluster", ip) for ip in spec.get("clusterIPs", ()))
    yield from (("external", ip) for ip in spec.get("externalIPs", ()))
    for entry in service["status"].get("loadBalancer", {}).get("ingress", ()):
        if entry.get("ipMode", "VIP") == "VIP":
            yield "balancer", entry["ip"]


def expected(spec, frontend, is_external=False):
    """The result for programs on the node and for pods, or for senders outside of the cluster."""
    candidates = endpoints(spec.slices, frontend)
    near, mine = everywhere(candidates), of_this_node(candidates)
    rules = spec.service["spec"]
    if frontend.kind == "cluster":
        local_only = rules.get("internalTrafficPolicy") == "Local"
    else:
        local_only = is_external and rules.get("externalTrafficPolicy") == "Local"
    chosen = mine if local_only else near
    if chosen:
        return Expected("served", frozenset(c.name for c in chosen), rules.get("sessionAffinity") == "ClientIP")
    return DROPPED if local_only and any(c.ready or c.draining for c in candidates) else REFUSED


def keeps_source(spec, frontend, is_external):
    """Whether a backend sees the address of the client that sent a packet. Else it sees an address of the node."""
    if frontend.kind == "cluster":
        return not is_external
    return spec.service["spec"].get("externalTrafficPolicy") == "Local"


def health(spec):
    """What the healthCheckNodePort answers: a status, and the number of ready endpoints on this node."""
    mine = {endpoint["addresses"][0] for piece in spec.slices if piece["addressType"] == "IPv4" and piece.get("ports")
            for endpoint in piece.get("endpoints") or ()
            if endpoint.get("nodeName") == at.NODE_NAME and endpoint.get("conditions", {}).get("ready", True)}
    return f"health: {200 if mine else 503} {len(mine)}"


def drops_external(spec, frontend):
    """Whether externalTrafficPolicy Local drops connections from outside the cluster, though there are endpoints."""
    candidates = endpoints(spec.slices, frontend)
    is_local = spec.service["spec"].get("externalTrafficPolicy") == "Local"
    return is_local and not of_this_node(candidates) and any(c.ready or c.draining for c in candidates)


Candidate = namedtuple("Candidate", "name ready draining local zones nodes")


def endpoints(slices, frontend):
    """Each endpoint of the port once, however many slices name it; an entry with this node's name has precedence."""
    found = {}
    for piece in slices:
        if piece["addressType"] != f"IPv{frontend.family}":
            continue
        for number in numbers(piece, frontend.port):
            for endpoint in piece.get("endpoints") or ():
                candidate = candidate_of(endpoint, number)
                if candidate.name not in found or candidate.local:
                    found[candidate.name] = candidate
    return list(found.values())


def numbers(piece, port):
    """The slice's port of that name."""
    return [p["port"] for p in piece.get("ports") or ()
            if p.get("name", "") == port.get("name", "") and p.get("protocol", "TCP") == port["protocol"]]


def candidate_of(endpoint, number):
    conditions = endpoint.get("conditions", {})
    ready = conditions.get("ready", True)
    draining = conditions.get("serving", ready) and conditions.get("terminating", False)
    hints = endpoint.get("hints") or {}
    return Candidate(at.endpoint(endpoint["addresses"][0], number), ready, draining,
                     endpoint.get("nodeName") == at.NODE_NAME,
                     {zone["name"] for zone in hints.get("forZones") or ()},
                     {node["name"] for node in hints.get("forNodes") or ()})


def everywhere(candidates):
    """Ready endpoints, only the near ones if hints say so; if none is ready, those that terminate and still serve."""
    ready = [c for c in candidates if c.ready]
    if not ready:
        return [c for c in candidates if c.draining]
    if all(c.nodes for c in ready) and any(at.NODE_NAME in c.nodes for c in ready):
        return [c for c in ready if at.NODE_NAME in c.nodes]
    if all(c.zones for c in ready) and any(at.ZONE in c.zones for c in ready):
        return [c for c in ready if at.ZONE in c.zones]
    return ready


def of_this_node(candidates):
    """Without hints."""
    mine = [c for c in candidates if c.local]
    return [c for c in mine if c.ready] or [c for c in mine if c.draining]
