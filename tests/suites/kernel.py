"""What the kernel's self-test of epoll wake-ups checks, over TCP.

The cases are our own, in tests/posix/src/cases/epoll_wakeups.rs.
"""

import os

from suites import socket_cases
from testkit import paths

WANTED = "epoll_wakeups"


def version():
    return f"Linux {os.uname().release}"


def run(tally, options, _make_way):
    """Left out of the quick run: `tools/test` has them in its stage posix."""
    if options.wants(WANTED) and not options.quick:
        tally.begin(WANTED)
        socket_cases.run(tally, paths.TARGET / "debug", WANTED)
