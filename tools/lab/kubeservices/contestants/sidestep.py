"""Sidestep: connect() goes to a backend at once, and no packet is looked at.

The agent reads one file a Service. Its maps and attachments are in a BPF file system of the measurement's own: when that
is unmounted nothing of them is left.
"""

import os
import time

from ...netns import MORTAL, inside, must
from .base import Contestant
from .objects import documents, endpoint_slice, service

AGENT = "sidestep-agent"
#: The agent makes this in one step when all tables are filled and all programs attached.
ATTACHED = "services/links"
POLL = 0.002


class Sidestep(Contestant):
    name, title = "sidestep", "Sidestep"

    def __init__(self, *parts):
        super().__init__(*parts)
        folder = self.lab.folder / self.cluster.name
        self.bpffs, self.directory, self.aside = (folder / name for name in ("bpf", "services", "aside"))
        for each in (self.bpffs, self.directory, self.aside):
            each.mkdir(parents=True)
        must(["mount", "-t", "bpf", "bpf", str(self.bpffs)])
        self.agent = None

    @staticmethod
    def missing(places):
        path = places.release / AGENT
        return None if path.exists() else f"{path} does not exist; run: cargo build --release -p {AGENT}"

    def fill(self):
        for each in self.load.services:
            self.write(self.directory, each)
        begin = time.monotonic()
        pins = self.bpffs / "sidestep"
        options = {
            "--config": self.directory,
            "--cgroup": self.cluster.cgroup,
            "--pins": pins,
            "--metrics": "off",
            "--socket": self.aside / "agent.sock",
            "--node-name": "node",
        }
        words = [str(word) for option in options.items() for word in option]
        argv = inside(self.cluster.node, [self.places.built(AGENT), *words])
        self.agent = self.lab.start(f"{self.cluster.name}-agent", [*MORTAL, *argv], None)
        self.wait_for(pins / ATTACHED)
        return time.monotonic() - begin

    def wait_for(self, path):
        end = time.monotonic() + self.plan.load_limit
        while not path.exists():
            if self.agent.poll() is not None:
                self.lab.fail(self.agent, f"ended with {self.agent.returncode}")
            if time.monotonic() > end:
                self.lab.fail(self.agent, f"has not attached its programs after {self.plan.load_limit:.0f} s")
            time.sleep(POLL)

    def prepare(self, old, new):
        return self.write(self.aside, new)

    def apply(self, prepared):
        os.rename(prepared, self.directory / prepared.name)

    def write(self, folder, each):
        file = folder / f"{each.name}.yaml"
        file.write_text(documents([service(each), endpoint_slice(each)]), encoding="utf-8")
        return file

    def close(self):
        if self.agent:
            self.lab.stop(self.agent)
        must(["umount", "--lazy", str(self.bpffs)])
