"""Rules of istio-iptables in each pod's namespace."""

import shutil

from ...places import SEARCH
from .. import rules
from ..rules import NODE_COMMAND
from .base import Contestant

COMMAND = "iptables-restore"


class Iptables(Contestant):
    name, title = "iptables", "iptables"
    main = True

    @classmethod
    def missing(cls, places):
        for command in (COMMAND, NODE_COMMAND):
            if not shutil.which(command, path=SEARCH):
                return f"{command} is not installed; run: tools/install-deps bench-mesh"
        return None

    def steer(self):
        for place in self.places_of_pods:
            rules.load(self.lab, place.namespace, rules.capture(), self.plan.load_limit)


class Again(Iptables):
    """The control: whoever finds a difference between this and the other is wrong."""

    name, title = "iptables-again", "iptables (again)"
    main = False
