"""Sidestep: connect() goes to a backend at once, and no packet is looked at.

Maps and attachments are in a BPF file system of the measurement's own: when it is unmounted nothing of them is left.
"""

import time

from ..cluster import NETNS, must
from ..talk import Talk
from .base import Contestant
from .objects import documents, endpoint_slice, service

DRIVER = "sidestep-bench-services"
START_LIMIT = 30.0


class Sidestep(Contestant):
    name, title = "sidestep", "Sidestep"

    def __init__(self, *parts):
        super().__init__(*parts)
        self.bpffs = self.lab.folder / f"{self.cluster.name}-bpf"
        self.objects = self.lab.folder / f"{self.cluster.name}-objects"
        self.driver = None
        for folder in (self.bpffs, self.objects):
            folder.mkdir()
        must(["mount", "-t", "bpf", "bpf", str(self.bpffs)])

    @staticmethod
    def missing(places):
        path = places.release / DRIVER
        return None if path.exists() else f"{path} does not exist; run: cargo build --release -p {DRIVER}"

    def fill(self):
        every = [make(each) for each in self.load.services for make in (service, endpoint_slice)]
        file = self.write("all", every)
        begin = time.monotonic()
        words = [self.places.built(DRIVER), self.bpffs / "sidestep", self.cluster.cgroup]
        argv = [str(word) for word in (*words, NETNS / self.cluster.node)]
        self.driver = Talk(self.lab, f"{self.cluster.name}-driver", argv)
        self.driver.answer(START_LIMIT)
        self.driver.ask(f"all {file}", self.plan.load_limit)
        return time.monotonic() - begin

    def prepare(self, old, new):
        return self.write("change", [endpoint_slice(new)])

    def apply(self, prepared):
        self.driver.ask(f"put {prepared}", self.plan.change_limit)

    def write(self, name, objects):
        file = self.objects / f"{name}.yaml"
        file.write_text(documents(objects), encoding="utf-8")
        return file

    def close(self):
        if self.driver:
            self.driver.stop()
        must(["umount", "--lazy", str(self.bpffs)])
