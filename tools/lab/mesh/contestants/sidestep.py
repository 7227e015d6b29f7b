"""Sidestep: traffic is led at the socket. Its programs are pinned in a BPF file system of the measurement's own."""

import subprocess

from ...netns import must
from ..settings import CAPTURE
from .base import Contestant

PROGRAM = "sidestep"
LIMIT = 20


def lacks(places, *commands):
    """Why the program cannot be used for these commands."""
    path = places.release / PROGRAM
    if not path.exists():
        return f"{path} does not exist; run: cargo build --release"
    for command in commands:
        asked = subprocess.run([path, command, "--help"], capture_output=True, timeout=LIMIT, check=False)
        if asked.returncode:
            return f"this {PROGRAM} has no command '{command}'"
    return None


class Capture(Contestant):
    name, title = "capture", "Sidestep capture"

    def __init__(self, mesh):
        super().__init__(mesh)
        self._bpffs = mesh.folder / "bpf"
        # One for the node: pods share tables and programs there.
        self._pins = self._bpffs / PROGRAM
        self._led = []

    @classmethod
    def missing(cls, places):
        return lacks(places, "capture")

    def steer(self):
        self._bpffs.mkdir()
        must(["mount", "-t", "bpf", "bpf", str(self._bpffs)])
        for place in self.places_of_pods:
            self._capture(place, "--cgroup", str(place.cgroup), *CAPTURE.options())
            self._led.append(place)

    def close(self):
        try:
            for place in self._led:
                self._capture(place, "--remove")
        finally:
            if self._bpffs.is_mount():
                must(["umount", "--lazy", str(self._bpffs)])

    def _capture(self, place, *words):
        pins = str(self._pins)
        command = [self.places.built(PROGRAM), "capture", "--netns", place.namespace, "--pins", pins]
        must([*command, *words])


class Splice(Capture):
    """With the sidecars' own connections spliced in the kernel."""

    name, title = "splice", "Sidestep capture + splice"

    @classmethod
    def missing(cls, places):
        return lacks(places, "capture", "splice") or "how `sidestep splice` is told of a pod is not settled yet"


class Bypass(Capture):
    """Where both ends may do without their sidecars, the agent's policy leads traffic past them."""

    name, title = "bypass", "Sidestep bypass"
    led = False

    @classmethod
    def missing(cls, places):
        return lacks(places, "capture") or "how the agent's policy allows a bypass is not settled yet"
