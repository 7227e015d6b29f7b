"""What ends, or is handed to another program, while its offer is under way: at the library's defaults, where no call waits for the
broker."""

import sys

from apps.support import versions
from testkit import paths
from testkit.failure import check

DEFAULTS = {"SIDESTEP_UPGRADE_AFTER": "auto", "SIDESTEP_PAIRING": ""}


def version():
    return versions.of(r"Python (\S+)", sys.executable, "--version")


def test_close_and_exec(case):
    """The peer sees each end at once, and no program loses the connection that it was started with."""
    case.expect_seen("python")
    seen = case.run_json("python", [sys.executable, paths.PEERS / "under_way.py"], env=DEFAULTS, seconds=60)
    check(seen["closed"] > 0 and not seen["late"], f"{seen['late']} of {seen['closed']} ends came late")
    late = seen["late_at_exit"]
    check(seen["exited"] > 0 and not late, f"{late} of {seen['exited']} ends of programs that exit came late")
    unflushed = seen["unflushed"]
    check(not unflushed, f"{unflushed} of {seen['exited']} programs have not sent what stdio flushes at exit")
    check(seen["started"] > 0 and not seen["lost"], f"{seen['lost']} of {seen['started']} programs have lost their connection")
