"""Random Services with random endpoints, the same ones for the same seed."""

import copy

from kube import addresses as at
from kube.model import PROXY_NAME, SERVICE_NAME

NAMESPACE = "random"
MOST_ENDPOINTS = 7
# Documentation addresses: no host has them.
EXTERNAL = {4: "203.0.113.{}", 6: "2001:db8:e::{:x}"}
BALANCER = {4: "192.0.2.{}", 6: "2001:db8:b::{:x}"}
MOST_ADDRESSES = 250

# Conditions of endpoints: the same for all of them, or random for each.
READY = {"ready": True}
NOT_READY = {"ready": False}
DRAINING = {"ready": False, "serving": True, "terminating": True}
ENDING = {"ready": False, "serving": False, "terminating": True}
UNKNOWN = {}
MOODS = {"ready": [READY], "unsaid": [UNKNOWN], "mixed": [READY, NOT_READY, DRAINING, ENDING, UNKNOWN],
         "draining": [DRAINING, NOT_READY, ENDING], "down": [NOT_READY, ENDING]}
MOOD_WEIGHTS = {"ready": 6, "unsaid": 1, "mixed": 4, "draining": 2, "down": 1}
# Zones and nodes in the endpoints' hints.
HINTS = {"none": [None], "zones": [at.ZONE, at.OTHER_ZONE], "far": [at.OTHER_ZONE], "some": [at.ZONE, None]}
HINT_WEIGHTS = {"none": 6, "zones": 3, "far": 1, "some": 1}
# Whom a load balancer lets in.
SOURCE_RANGES = {
    "clients": ["10.244.0.0/16", "10.251.0.0/24", "10.252.0.0/24", "fd00::/16"],
    "nobody here": ["198.51.100.0/24", "2001:db8:5::/48"],
    "everybody": ["198.51.100.0/24", "0.0.0.0/0", "::/0"],
}
SOURCE_RANGE_WEIGHTS = {"clients": 4, "nobody here": 3, "everybody": 3}


class Generator:
    def __init__(self, random):
        self.random = random
        self.names = 0
        self.numbers = {"external": 0, "balancer": 0}

    def chance(self, of_hundred):
        return self.random.randrange(100) < of_hundred

    def pick(self, weights):
        return self.random.choices(list(weights), list(weights.values()))[0]

    # --- Services ---------------------------------------------------------------------------------------------------

    def service(self):
        """A Service as a user would write it."""
        self.names += 1
        kind = self.pick({"ClusterIP": 8, "NodePort": 6, "LoadBalancer": 6, "None": 1, "ExternalName": 1})
        metadata = {"name": f"s{self.names}", "namespace": NAMESPACE}
        if self.chance(6):
            metadata["labels"] = {PROXY_NAME: "another"}
        thing = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
        if kind == "ExternalName":
            thing["spec"] = {"type": kind, "externalName": "example.test"}
            return thing
        spec = {"type": "ClusterIP" if kind == "None" else kind, "ports": self.ports(), **self.families()}
        thing["spec"] = spec
        if kind == "None":
            spec["clusterIP"] = "None"
        else:
            self.policies(spec)
        if self.chance(30):
            spec["externalIPs"] = [self.address("external", EXTERNAL, f) for f in self.some_families()]
        return thing

    def ports(self):
        count = self.pick({1: 5, 2: 3, 3: 1})
        numbers = self.random.sample(range(80, 9999), count)
        named = count > 1 or self.chance(30)
        ports = [{"port": number, "protocol": self.pick({"TCP": 2, "UDP": 1})} for number in numbers]
        for i, port in enumerate(ports):
            if named:
                port["name"] = f"p{i}"
        if count > 1 and self.chance(20):
            # One port number for both protocols, as for DNS.
            ports[0]["protocol"], ports[1]["protocol"], ports[1]["port"] = "TCP", "UDP", ports[0]["port"]
        return ports

    def families(self):
        order = self.random.choice([["IPv4", "IPv6"], ["IPv6", "IPv4"]])
        if self.chance(50):
            return {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": order}
        return {"ipFamilyPolicy": "SingleStack", "ipFamilies": order[:1]}

    def some_families(self):
        return self.random.choice([[4], [6], [4, 6]])

    def policies(self, spec):
        if self.chance(30):
            spec["internalTrafficPolicy"] = "Local"
        if spec["type"] != "ClusterIP" and self.chance(30):
            spec["externalTrafficPolicy"] = "Local"
        if self.chance(25):
            spec["sessionAffinity"] = "ClientIP"
            if self.chance(50):
                spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 600}}
        if spec["type"] == "LoadBalancer":
            spec["allocateLoadBalancerNodePorts"] = self.chance(70)
            if self.chance(15):
                spec["loadBalancerSourceRanges"] = SOURCE_RANGES[self.pick(SOURCE_RANGE_WEIGHTS)]

    def address(self, kind, form, family):
        """An address that no other Service had recently."""
        self.numbers[kind] = self.numbers[kind] % MOST_ADDRESSES + 1
        return form[family].format(self.numbers[kind])

    def balancer_status(self):
        """The status that a cloud would write into a Service of type LoadBalancer."""
        ingress = []
        for family in self.some_families():
            entry = {"ip": self.address("balancer", BALANCER, family)}
            entry["ipMode"] = "Proxy" if self.chance(15) else "VIP"
            ingress.append(entry)
        return {"loadBalancer": {"ingress": ingress}}

    # --- endpoints --------------------------------------------------------------------------------------------------

    def slices(self, service):
        """Up to two slices for each family of the Service."""
        found = []
        for family in (4, 6):
            if f"IPv{family}" in service["spec"].get("ipFamilies", ()):
                found += self.of_family(service, family)
        return found

    def of_family(self, service, family):
        count = self.pick({0: 1, 1: 6, 2: 3})
        mood, hints = self.pick(MOOD_WEIGHTS), self.pick(HINT_WEIGHTS)
        hint_kind = self.pick({"forZones": 2, "forNodes": 1, "both": 1})
        addresses = self.random.sample(at.backends(family), self.random.randrange(MOST_ENDPOINTS + 1))
        all_endpoints = [self.endpoint(a, family, mood, hints, hint_kind) for a in addresses]
        found = []
        for i in range(count):
            # Sometimes two slices have an endpoint in common, as while a controller moves it.
            own = [e for j, e in enumerate(all_endpoints) if j % count == i or self.chance(10)]
            found.append(self.slice(service, family, i, copy.deepcopy(own)))
        return found

    def slice(self, service, family, number, own):
        name = f"{service['metadata']['name']}-{family}-{number}"
        ports = [{"name": port.get("name", ""), "protocol": port["protocol"],
                  "port": self.random.choice(at.BACKEND_PORTS)}
                 for port in service["spec"]["ports"] if not self.chance(5)]
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {SERVICE_NAME: service["metadata"]["name"]}}
        return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
                "addressType": f"IPv{family}", "ports": ports, "endpoints": own}

    def endpoint(self, address, family, mood, hints, hint_kind):
        endpoint = {"addresses": [address], "conditions": dict(self.random.choice(MOODS[mood]))}
        # The prober is on this node: its endpoint never has another node's name.
        node = at.NODE_NAME if address == at.POD[family] else self.pick({at.NODE_NAME: 4, at.OTHER_NODE: 5, None: 1})
        if node:
            endpoint["nodeName"] = node
        zone = self.random.choice(HINTS[hints])
        if zone:
            endpoint["hints"] = hint(zone, hint_kind)
        return endpoint


def hint(zone, kind):
    node = at.NODE_NAME if zone == at.ZONE else at.OTHER_NODE
    forms = {"forZones": [{"name": zone}], "forNodes": [{"name": node}]}
    return forms if kind == "both" else {kind: forms[kind]}
