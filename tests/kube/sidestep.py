"""A node whose Services are implemented by Sidestep's agent."""

import subprocess

import addresses as at
from cgroups import Cgroup
from commands import run
from differences import SIDESTEP
from support.failure import Failure
from support.paths import TARGET
from worlds import World

STOP_SECONDS = 30


class Sidestep(World):
    """Programs of its pods are in a cgroup of their own, to which the agent attaches; nobody else's are."""

    def __init__(self, *of_world):
        super().__init__(*of_world)
        self.program = TARGET / "release" / "sidestep"
        self.bpffs = self.directory / "bpf"
        self.pins = self.bpffs / "sidestep"
        self.socket = self.directory / "agent.sock"
        self.cgroup = Cgroup(SIDESTEP)

    def build(self):
        for program in (self.program, self.program.with_name("sidestep-agent")):
            if not program.exists():
                raise Failure(f"{program} is missing: run cargo build --release -p sidestep-cli -p sidestep-agent")
        self.cgroup.make()
        super().build()
        self.bpffs.mkdir()
        run("mount", "-t", "bpf", "bpf", self.bpffs)

    def around(self, command):
        return self.cgroup.around(command)

    def start_services(self):
        command = [self.program, "agent", "--kubeconfig", self.control_plane.kubeconfig, "--node-name", at.NODE_NAME,
                   "--cgroup", self.cgroup.path, "--pins", self.pins, "--socket", self.socket, "--metrics", "off"]
        self.services = self.start_process("agent", self.namespaces["node"].around([str(word) for word in command]))

    def end_services(self):
        """The agent ends; what it has programmed stays."""
        self.services.stop(STOP_SECONDS)
        self.processes.remove(self.services)

    def clear_services(self):
        """Nothing of them is left."""
        run(self.program, "agent", "--detach", "--pins", self.pins, "--socket", self.socket)

    def stop(self):
        super().stop()
        if self.pins.exists():
            subprocess.run([self.program, "agent", "--detach", "--pins", self.pins, "--socket", self.socket],
                           capture_output=True)
        subprocess.run(["umount", "--lazy", self.bpffs], capture_output=True)
        self.cgroup.remove()
