"""A node whose Services are implemented by Sidestep's agent."""

import os
import subprocess

from kube import addresses as at
from kube.differences import SIDESTEP
from kube.worlds import World
from testkit import cgroups, paths
from testkit.bpffs import BpfFileSystem
from testkit.commands import run

STOP_SECONDS = 30
# Cargo's profile whose programs are tested; `debug` is built faster.
PROFILE = os.environ.get("SIDESTEP_TEST_PROFILE", "release")


class Agent(World):
    """Programs of its pods are in a cgroup of their own, to which the agent attaches; no other programs are."""

    def __init__(self, *of_world):
        super().__init__(*of_world)
        self.program = paths.TARGET / PROFILE / "sidestep"
        self.bpffs = BpfFileSystem(self.directory / "bpf")
        self.pins = self.bpffs.pins
        self.socket = self.directory / "agent.sock"
        self.cgroup = cgroups.of_this_run(SIDESTEP)
        # More of the agent's own.
        self.options = ()

    def build(self):
        paths.built(PROFILE, "sidestep", "sidestep-agent")
        super().build()
        self.bpffs.mount()

    def around(self, command):
        return self.cgroup.around(command)

    def start_services(self):
        command = [self.program, "agent", "--kubeconfig", self.control_plane.kubeconfig, "--node-name", at.NODE_NAME,
                   "--cgroup", self.cgroup.path, "--pins", self.pins, "--socket", self.socket, "--metrics", "off",
                   "--replace-kube-proxy", "--cluster-cidr", ",".join(at.POD_NETWORKS), *self.options]
        self.services = self.start_process("agent", self.namespaces["node"].around(command))

    def end_services(self):
        """The agent ends; what it has programmed stays."""
        self.services.stop(STOP_SECONDS)
        self.processes.remove(self.services)

    def clear_services(self):
        """Removes all programs and tables."""
        run(self.program, "agent", "--detach", "--pins", self.pins, "--socket", self.socket)

    def stop(self):
        super().stop()
        if self.pins.exists():
            subprocess.run([self.program, "agent", "--detach", "--pins", self.pins, "--socket", self.socket],
                           capture_output=True)
        self.bpffs.unmount()
        self.cgroup.remove()
