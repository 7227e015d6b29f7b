"""Doubles of one node with pods, whose connections go through their proxies: by Sidestep, or by iptables.

    node  br0 10.244.0.1, fd00:244::1
     |  |  |
     |  |  outside .4: a program, and no proxy
     |  server .3: Envoy in front of a program
    client .2: Envoy in front of a program

Doubles have the same addresses, so that a case means the same in each of them.
"""

from capture.envoy import Envoy
from capture.pods import Pod
from testkit.namespaces import Namespace

GATEWAY = {4: "10.244.0.1", 6: "fd00:244::1"}
NUMBERS = {"client": 2, "server": 3, "outside": 4}
PORT = 8080
# At which nothing that comes in is captured, as a sidecar's injector has it.
EXCLUDED = (15020, 15021, 15090)
SECOND_PORT = 8081


class World:
    """`name`: which of the doubles. `capture(pod)` makes its connections go through its proxy."""

    def __init__(self, testbed, name):
        self.testbed = testbed
        self.name = name
        self.env = testbed.env
        self.cgroup = testbed.cgroup.child(name)
        self.directory = testbed.directory / name
        self.directory.mkdir()
        self.directory.chmod(0o755)
        self.pods = {}
        self.envoys = {}
        self.node = None

    def build(self):
        self.node = Namespace(f"{self.name}-node")
        self.node.ip("link add br0 type bridge")
        self.node.ip("link set br0 up")
        for family, gateway in GATEWAY.items():
            self.node.ip(f"addr add {gateway}/{24 if family == 4 else 64} dev br0 {'nodad' if family == 6 else ''}")
        for name, number in NUMBERS.items():
            self.pod(name, number)

    def pod(self, name, number, after=lambda pod: None):
        """One more pod."""
        pod = Pod(self, f"{name}", number)
        self.pods[name] = pod
        pod.connect(self.node, GATEWAY)
        after(pod)
        return pod

    def start(self):
        self.build()
        for pod in self.pods.values():
            pod.program(PORT, SECOND_PORT, EXCLUDED[1])
        # One is captured before its proxy runs, the other while it does.
        self.capture(self.client)
        for name in ("client", "server"):
            self.envoys[name] = Envoy(self.pods[name], PORT).start()
        self.capture(self.server)

    @property
    def client(self):
        return self.pods["client"]

    @property
    def server(self):
        return self.pods["server"]

    @property
    def outside(self):
        return self.pods["outside"]

    def capture(self, pod):
        raise NotImplementedError

    def remove(self, name):
        """A pod of one case."""
        self.pods.pop(name).stop()

    def must_run(self):
        for pod in self.pods.values():
            for process in pod.processes:
                process.must_run()

    def stop(self):
        for pod in self.pods.values():
            pod.stop()
        for envoy in self.envoys.values():
            envoy.forget()
        if self.node:
            self.node.remove()
