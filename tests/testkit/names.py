"""Names of what a run makes on the machine. They hold the number of its process, so that a later run knows whose they were."""

import os
import re

PREFIX = "sidestep-test-"


def of_this_run(name):
    return f"{PREFIX}{os.getpid()}-{name}"


def owner_of(name):
    """The process whose run has made it; None if no run has."""
    found = re.match(rf"{PREFIX}(\d+)-", name)
    return int(found.group(1)) if found else None
