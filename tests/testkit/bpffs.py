"""BPF file systems of a run's own: what is pinned there goes with them."""

import subprocess
from pathlib import Path

from testkit.commands import ENV, run


class BpfFileSystem:
    """`pins`: where Sidestep's commands put theirs."""

    def __init__(self, path):
        self.path = path
        self.pins = path / "sidestep"

    def mount(self):
        self.path.mkdir()
        run("mount", "-t", "bpf", "bpf", self.path)

    def unmount(self):
        if self.path.is_mount():
            unmount(self.path)


def unmount(path):
    """Whatever still uses it."""
    subprocess.run(["umount", "--lazy", path], env=ENV, capture_output=True)


def mounted_below(directory):
    fields = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(place) for _, place, kind, *_ in fields if kind == "bpf" and Path(place).is_relative_to(directory)]
