"""Fetches with curl what must come back byte for byte the same."""

import subprocess

from . import settings
from .errors import LabError
from .services import BODIES, FILE, PATHS, SMALL

#: Requests on one kept-alive connection: long enough that it is upgraded on the way.
KEPT_ALIVE = [SMALL, FILE] * 20


def check(lab, places, starter, chain):
    """All paths of a chain, each by a connection of its own and by one that is kept; how many bodies were compared."""
    compared = 0
    for path in PATHS:
        for wanted in ([SMALL], [FILE], KEPT_ALIVE):
            compared += _fetch(lab, places, starter, chain, path, wanted)
    return compared


def _fetch(lab, places, starter, chain, path, wanted):
    argv = [places.tool("curl"), "--silent", "--show-error", "--fail", "--max-time", "20"]
    argv += ["--write-out", "%{stderr}%{num_connects}\n"]
    argv += [chain.url(path, place) for place in wanted]
    # The library's report of curl goes to the chain's own report file.
    argv = starter.command(chain.variant, argv, chain.report)
    env = starter.environment(chain.variant)
    done = subprocess.run(argv, env=env, capture_output=True, timeout=settings.RUN_SLACK, check=False)
    what = f"{chain.variant.title}, {path}: curl of {len(wanted)} bodies"
    words = done.stderr.decode(errors="replace").split()
    if done.returncode != 0:
        raise LabError(f"{what} ended with {done.returncode}: {' '.join(words)}")
    expected = b"".join(BODIES[place] for place in wanted)
    if done.stdout != expected:
        raise LabError(f"{what}: {_difference(expected, done.stdout)}")
    connects = [int(word) for word in words if word.isdigit()]
    if connects != [1] + [0] * (len(wanted) - 1):
        raise LabError(f"{what} should have used one connection; connects were {connects}")
    return len(wanted)


def _difference(expected, got):
    where = next((n for n, (a, b) in enumerate(zip(expected, got)) if a != b), min(len(expected), len(got)))
    return f"expected {len(expected)} bytes, got {len(got)}, different from byte {where} on"
