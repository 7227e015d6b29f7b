"""A host with an agent, and pods to which the agent's programs apply."""

import subprocess

from hosts.world import Pod
from testkit import cgroups
from testkit.bpffs import BpfFileSystem
from testkit.paths import built
from testkit.wait import until

NOTHING_CAPTURED = {"includeOutboundIPRanges": "", "includeInboundPorts": ""}


class Node:
    """`sidestep agent` of a host, with a broker that its pods reach. The agent serves the processes of its cgroup."""

    def __init__(self, bed, host):
        self.bed, self.host = bed, host
        self.cgroup = cgroups.of_this_run(f"{host.name}-pods")
        bed.stack.callback(self.cgroup.remove)
        bed.stack.callback(self.cgroup.kill)
        self.files = BpfFileSystem(bed.directory / f"{host.name}-bpf")
        bed.stack.callback(self.files.unmount)
        self.files.mount()
        self.documents = bed.directory / f"{host.name}-documents"
        self.documents.mkdir()
        self.options = ["--pins", self.files.pins, "--socket", bed.directory / f"{host.name}-agent.sock"]
        self.broker = bed.directory / f"{host.name}-broker"

    def start(self):
        agent_program = built("debug", "sidestep-agent") / "sidestep-agent"
        words = [agent_program, "--config", self.documents, "--cgroup", self.cgroup.path, "--metrics", "off", *self.options]
        agent = self.host.process("agent", words)
        self.bed.stack.callback(lambda: subprocess.run([agent_program, "--detach", *self.options], capture_output=True))
        until(lambda: self.ask("service", "list").returncode == 0, "the agent to answer", 20, agent.must_run)
        settings = self.bed.directory / f"{self.host.name}-broker.toml"
        settings.write_text("cross-namespaces = true\n")
        broker = self.host.process("broker", [self.bed.programs_in / "sidestepd", "--address", self.broker, "--config", settings])
        until(self.broker.exists, "the broker of the pods", 10, broker.must_run)

    def ask(self, *words):
        return subprocess.run([self.bed.programs_in / "sidestep", *words, "--socket", self.options[-1]], capture_output=True)

    def tell(self, name, text):
        """A file of documents; what was in it before is forgotten. Files are renamed into place, so that none is read half."""
        part = self.documents / f"{name}.part"
        part.write_text(text)
        part.rename(self.documents / f"{name}.yaml")

    def forget(self, name):
        (self.documents / f"{name}.yaml").unlink()


class GovernedPod(Pod):
    """A pod in the agent's cgroup. `rules`: what its annotations say of capture."""

    def __init__(self, node, other, name, number=1, rules=NOTHING_CAPTURED):
        self.node = node
        super().__init__(node.bed, name, node.host, other, node.broker, number)
        self.capture(rules)

    def capture(self, rules):
        annotations = "".join(f"    traffic.sidecar.istio.io/{key}: \"{value}\"\n" for key, value in rules.items())
        self.node.tell(self.name, f"apiVersion: sidestep.dev/v1\nkind: Capture\nmetadata:\n  name: {self.name}\n  namespace: shop\n"
                       f"  labels: {{app: {self.name}}}\n  annotations:\n{annotations}"
                       f"spec: {{netns: {self.namespace.name}, addresses: [{', '.join(self.addresses.values())}]}}\n")

    def around(self, words):
        return self.node.cgroup.around(super().around(words))
