"""Rings between an application and its sidecar, whoever leads the traffic there.

Both ends run under `sidestep run`. They are different users, so a broker of root pairs them, whose configuration allows
the two to share memory. Connections between the pods keep kernel TCP, as those between nodes do.
"""

from ...netns import MORTAL
from ...ring import Report
from ..settings import APPLICATION, CAPTURE, GENERATOR
from .iptables import Iptables
from .sidestep import PROGRAM, Capture, lacks

BROKER = "sidestepd"
ALLOWED = f"[[allow]]\nuids = [{APPLICATION}, {CAPTURE.user}]\n"


class Rings:
    """Before another class of contestants."""

    @classmethod
    def missing(cls, places):
        return lacks(places, "run") or super().missing(places)

    def steer(self):
        super().steer()
        folder = self.mesh.folder
        config, address = folder / "sidestep.toml", folder / "broker"
        config.write_text(ALLOWED, encoding="ascii")
        self.report = folder / "report.jsonl"
        self.report.touch()
        self.report.chmod(0o666)
        words = ["--address", address, "--config", config, "--idle-exit", "0"]
        argv = [*MORTAL, self.places.built(BROKER), *map(str, words)]
        broker = self.lab.start(f"{self.node.name}-broker", argv, None)
        self.lab.wait_ready(broker, address.is_socket)
        self.environment["SIDESTEP_BROKER"] = str(address)

    def moved(self):
        return {"by ring": Report(self.report).total(GENERATOR).ring_bytes}

    def wrap(self, place, program):
        return [self.places.built(PROGRAM), "run", "--report", str(self.report), "--"]


class IptablesRings(Rings, Iptables):
    name, title = "iptables+rings", "iptables + Sidestep rings"
    main = False


class CaptureRings(Rings, Capture):
    name, title = "capture+rings", "Sidestep capture + rings"
    main = True
