"""Pod to pod without a Service: the limit for everybody else."""

from .base import Contestant


class Direct(Contestant):
    name, title = "direct", "direct"
    programs = False

    def targets(self, service):
        return self.load.direct()

    def fill(self):
        return None
