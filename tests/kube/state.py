"""The random Services of a run, as the API server has them, and how they change from round to round."""

from kube.generator import NAMESPACE, Generator
from kube.model import Spec

# Changes in a round, in percent of the Services: other endpoints, other policies, removal.
OTHER_ENDPOINTS = 40
OTHER_POLICIES = 15
GONE = 10


class State:
    def __init__(self, api, random):
        self.api = api
        self.random = random
        self.generator = Generator(random)
        self.specs = {}
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    def fill(self, count):
        """Creates this many Services."""
        while len(self.specs) < count:
            self.add()

    def add(self):
        wanted = self.generator.service()
        slices = self.generator.slices(wanted)
        service = self.api.create(wanted)
        if service["spec"]["type"] == "LoadBalancer":
            service = self.api.set_status(service, self.generator.balancer_status())
        self.specs[service["metadata"]["name"]] = Spec(service, [self.api.create(piece) for piece in slices])

    def change(self):
        """Some Services get other endpoints, some other policies, some are removed."""
        for name in sorted(self.specs):
            dice = self.random.randrange(100)
            if dice < OTHER_ENDPOINTS:
                self.change_endpoints(name)
            elif dice < OTHER_ENDPOINTS + OTHER_POLICIES:
                self.change_policies(name)
            elif dice < OTHER_ENDPOINTS + OTHER_POLICIES + GONE:
                self.remove(name)

    def change_endpoints(self, name):
        """Changes slices of the same name, creates new ones, and deletes the others."""
        service, old = self.specs[name]
        left = {piece["metadata"]["name"] for piece in old}
        new = []
        for piece in self.generator.slices(service):
            write = self.api.replace if piece["metadata"]["name"] in left else self.api.create
            left.discard(piece["metadata"]["name"])
            new.append(write(piece))
        for piece in old:
            if piece["metadata"]["name"] in left:
                self.api.delete(piece)
        self.specs[name] = Spec(service, new)

    def change_policies(self, name):
        service, slices = self.specs[name]
        if service["spec"]["type"] == "ExternalName" or service["spec"]["clusterIP"] == "None":
            return
        rules = service["spec"]
        is_local = rules.get("internalTrafficPolicy") == "Local"
        rules["internalTrafficPolicy"] = "Cluster" if is_local else "Local"
        is_sticky = rules.get("sessionAffinity") == "ClientIP"
        rules["sessionAffinity"] = "None" if is_sticky else "ClientIP"
        rules.pop("sessionAffinityConfig", None)
        self.specs[name] = Spec(self.api.replace(service), slices)

    def remove(self, name):
        service, slices = self.specs.pop(name)
        for thing in (service, *slices):
            self.api.delete(thing)
