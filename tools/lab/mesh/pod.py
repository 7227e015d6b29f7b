"""How a program of a pod is started: in the pod's namespace, in a cgroup of its own, as its user."""

import os

from .. import netns
from ..netns import MORTAL, inside
from ..talk import Talk
from .settings import APPLICATION, CAPTURE

#: program -> user and group.
USERS = {"proxy": (CAPTURE.user, CAPTURE.group), "app": (APPLICATION, APPLICATION)}


class Pods:
    """`wrap` is what the contestant puts before a program, by its place and name."""

    def __init__(self, lab, wrap, environment):
        self._lab, self._wrap, self._environment = lab, wrap, environment

    def start(self, place, program, argv):
        return self._lab.start(*self._command(place, program, argv), **self._options(place, program))

    def talk(self, place, program, argv):
        """One that is asked line by line."""
        name, argv, environment = self._command(place, program, argv)
        return Talk(self._lab, name, argv, environment, **self._options(place, program))

    def _command(self, place, program, argv):
        user, group = USERS[program]
        as_user = [*MORTAL, "--reuid", str(user), "--regid", str(group), "--clear-groups"]
        argv = [*as_user, *self._wrap(place, program), *map(str, argv)]
        return f"{place.namespace}-{program}", inside(place.namespace, argv), self._clean()

    def _clean(self):
        """Nothing of the caller's settings reaches a program."""
        ours = {name: word for name, word in os.environ.items() if not name.startswith("SIDESTEP")}
        ours.pop("LD_PRELOAD", None)
        return ours | self._environment

    def _options(self, place, program):
        cgroup = place.cgroup_of(program)
        return {"preexec_fn": lambda: netns.join(cgroup)}


def own(folder, program):
    """A new folder that the program may write to."""
    folder.mkdir()
    os.chown(folder, *USERS[program])
    return folder
