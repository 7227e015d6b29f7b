"""One contestant: its node, its pods, their sidecars, the service."""

import contextlib
import json

from ..netns import undisturbed
from . import certificates, envoy, rules, service
from .node import Node
from .pod import Pods, own
from .settings import PORTS, VIP
from .sidecar import Sidecar


class Mesh:
    """Ready when entered: everything listens. `count` rules are on its node."""

    def __init__(self, kind, lab, places, plan, count):
        self.lab, self.places, self.plan, self.count = lab, places, plan, count
        self.name, self.title = kind.name, kind.title
        self.kind = kind
        #: Turns of it that have failed, one after another.
        self.failures = 0
        self._open = contextlib.ExitStack()

    def __enter__(self):
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with undisturbed():
            self._open.close()

    def _begin(self):
        self.node = self._open.enter_context(Node(f"{self.name}{self.count}"))
        self.folder = self.lab.folder / self.node.name
        self.folder.mkdir()
        self.contestant = self.kind(self)
        self._open.callback(self.contestant.close)
        # Programs end first, then what led their traffic is removed, then the node.
        self._open.enter_context(self.lab.scope())
        self._load_rules()
        self.contestant.steer()
        self.pods = Pods(self.lab, self.contestant.wrap, self.contestant.environment)
        nginx = service.start(self.pods, self.places, self.node.server, self.folder / "service")
        self.sidecars = self._sidecars() if self.kind.meshed else {}
        for sidecar in self.sidecars.values():
            sidecar.wait_ready()
        self.lab.wait_ready(nginx, lambda: all(listens(nginx.pid, port) for port in PORTS))

    def _load_rules(self):
        address, kube_proxy = self.node.server.address, self.kind.kube_proxy
        text = rules.node(self.count, self.plan.walk, address, kube_proxy)
        rules.load(self.lab, self.node.namespace, text, self.plan.load_limit, rules.NODE_COMMAND)

    def _sidecars(self):
        node, plan = self.node, self.plan
        upstream = {"pod": node.server.address, "vip": VIP}[plan.upstream]
        papers = certificates.make(self.folder / "certificates", ("client", "server"))
        configs = {
            "client": lambda admin: envoy.client(upstream, papers["client"], admin, plan),
            "server": lambda admin: envoy.server(papers["server"], admin, plan),
        }
        return {role: self._sidecar(getattr(node, role), config) for role, config in configs.items()}

    def _sidecar(self, place, config):
        folder = own(self.folder / f"{place.role}-proxy", "proxy")
        admin, file = folder / "admin.sock", folder / "envoy.json"
        file.write_text(json.dumps(config(admin), indent=1), encoding="ascii")
        argv = [self.places.envoy(), "-c", file, "--concurrency", self.plan.threads]
        argv += ["--disable-hot-restart", "--log-level", "error"]
        return Sidecar(self.lab, self.pods.start(place, "proxy", argv), admin)


def listens(pid, port):
    """Whether somebody listens on that port in the namespace of that process; nobody is dialled for it."""
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as file:
        lines = [line.split() for line in file][1:]
    return any(words[1].endswith(f":{port:04X}") and words[3] == LISTEN for words in lines)


#: TCP_LISTEN of /proc/net/tcp.
LISTEN = "0A"
