"""Pods that `sidestep capture` captures."""

from commands import run
from support.failure import Failure
from support.paths import TARGET
from worlds import EXCLUDED, World

PROGRAM = TARGET / "debug" / "sidestep"
RULES = ("-p", "15001", "-z", "15006", "-u", "1337", "-g", "1337", "-i", "*", "-b", "*",
         "-d", ",".join(map(str, EXCLUDED)))


class Sidestep(World):
    """`pins`: where programs and tables are."""

    def __init__(self, lab, name="ours"):
        super().__init__(lab, name)
        self.pins = lab.bpffs / "sidestep"

    def capture(self, pod, *more, rules=RULES, cgroup=None, pins=None):
        """The real command."""
        return run(PROGRAM, "capture", "--netns", pod.namespace.name, "--cgroup", cgroup or self.cgroup.path,
                   "--pins", pins or self.pins, *rules, *more)

    def release(self, pod, pins=None):
        run(PROGRAM, "capture", "--netns", pod.namespace.name, "--pins", pins or self.pins, "--remove")


def must_be_built():
    for name in ("sidestep", "sidestep-agent"):
        if not PROGRAM.with_name(name).exists():
            raise Failure(f"{PROGRAM.with_name(name)} is missing: run cargo build -p sidestep-cli -p sidestep-agent")
