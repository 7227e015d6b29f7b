"""Who exchanges a Service's address for a backend's."""

import shutil
import time

from ...netns import TooSlow, inside, must
from ...places import SEARCH


class Contestant:
    name = title = ""
    #: There is something to load and to change.
    programs = True
    #: The cost depends on the Service's place in a list.
    has_positions = False
    #: Loading took too long: the Services that are not dialled are there without their endpoints.
    hollow = False

    def __init__(self, lab, places, plan, cluster, load):
        self.lab, self.places, self.plan, self.cluster, self.load = lab, places, plan, cluster, load

    @staticmethod
    def missing(places):
        """Why it cannot take part here; None if it can."""

    def targets(self, service):
        """What the client dials to reach the Service."""
        return service.target

    def fill(self):
        """Everything is programmed when this returns. The seconds it took; None if there is nothing to program."""
        raise NotImplementedError

    def prepare(self, old, new):
        """What `apply` is to do when one Service has changed; not timed."""
        raise NotImplementedError

    def apply(self, prepared):
        """Makes the change."""
        raise NotImplementedError

    def close(self):
        """What is not gone with the cluster."""


class Rules(Contestant):
    """Rules of the node, written by a command that reads them."""

    command = ()

    @classmethod
    def missing(cls, places):
        if not shutil.which(cls.command[0], path=SEARCH):
            return f"{cls.command[0]} is not installed; run: tools/install-deps bench-services"
        return None

    def argv(self):
        return list(self.command)

    def run(self, text, limit):
        must(inside(self.cluster.node, self.argv()), text, limit)

    def fill(self):
        try:
            return self.timed(self.everything())
        except TooSlow:
            # The cost of a connection is that of finding the Service, which is the same: all of them are there.
            self.hollow = True
            self.timed(self.everything())
            return None

    def timed(self, text):
        begin = time.monotonic()
        self.run(text, self.plan.load_limit)
        return time.monotonic() - begin

    def is_whole(self, service):
        """Whether its endpoints are there, too."""
        return not self.hollow or service.name in self.load.dialled_names

    def everything(self):
        """The rules of all Services."""
        raise NotImplementedError

    def apply(self, prepared):
        self.run(prepared, self.plan.change_limit)
