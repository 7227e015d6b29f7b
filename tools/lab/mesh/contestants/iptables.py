"""Rules of istio-iptables in each pod's namespace."""

import shutil

from ...places import SEARCH
from .. import rules
from .base import Contestant

COMMAND = "iptables-restore"


class Iptables(Contestant):
    name, title = "iptables", "iptables"

    @classmethod
    def missing(cls, places):
        if not shutil.which(COMMAND, path=SEARCH):
            return f"{COMMAND} is not installed; run: tools/install-deps bench-mesh"
        return None

    def steer(self):
        for place in self.places_of_pods:
            rules.load(self.lab, place.namespace, rules.capture(), self.plan.load_limit)


class Again(Iptables):
    """The control: whoever finds a difference between this and the other is wrong."""

    name, title = "iptables-again", "iptables (again)"
