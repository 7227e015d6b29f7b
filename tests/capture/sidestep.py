"""Pods that `sidestep capture` captures."""

from capture.worlds import EXCLUDED, World
from testkit import paths
from testkit.commands import bpftool, run

PROGRAM = paths.TARGET / "debug" / "sidestep"
RULES = ("-p", "15001", "-z", "15006", "-u", "1337", "-g", "1337", "-i", "*", "-b", "*",
         "-d", ",".join(map(str, EXCLUDED)))


class Sidestep(World):
    """`pins`: where programs and tables are."""

    def __init__(self, testbed, name="ours"):
        super().__init__(testbed, name)
        self.pins = testbed.bpffs.pins
        # Those that are captured with these pins.
        self.captured = set()

    def capture(self, pod, *more, rules=RULES, cgroup=None, pins=None):
        """The real command."""
        if pins is None:
            self.captured.add(pod.name)
        return run(PROGRAM, "capture", "--netns", pod.namespace.name, "--cgroup", cgroup or self.cgroup.path,
                   "--pins", pins or self.pins, *rules, *more)

    def release(self, pod, pins=None):
        if pins is None:
            self.captured.discard(pod.name)
        run(PROGRAM, "capture", "--netns", pod.namespace.name, "--pins", pins or self.pins, "--remove")

    def remove(self, name):
        """It is not left to its namespace's end, which the kernel puts off until the last connection has been forgotten:
        so long the pod would be captured."""
        if name in self.captured:
            self.release(self.pods[name])
        super().remove(name)

    def forget(self, name):
        """Removes a pod that stays captured."""
        self.captured.discard(name)
        super().remove(name)

    def inbound(self):
        """Links of the programs in namespaces, by the namespace's cookie; `netns_ino` is 0 of those that have ended."""
        return {path.name: bpftool("link", "show", "pinned", path) for path in self.pins.glob("services/inbound/*")}


def must_be_built():
    paths.built("debug", "sidestep", "sidestep-agent")
