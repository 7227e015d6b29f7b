"""Programs that leave their terminal and then have nothing to do for a while."""

import sys
import time

from apps.support import echo, versions
from testkit import wait
from testkit.failure import check

# A broker that was started on demand leaves when it has been without members for so long.
IDLE_SECONDS = 1


def version():
    return versions.of(r"Python (\S+)", sys.executable, "--version")


def test_quiet_daemon_keeps_its_broker(case):
    """A server forks away and is silent for longer than a broker without members would stay."""
    case.expect_ring("server", "client")
    if case.layer is not None:
        case.run("broker", [case.layer.bin_dir / "sidestepd", "--background", "--address", case.layer.broker,
                            "--idle-exit", IDLE_SECONDS], preload=False)
    server = case.start("server", [sys.executable, case.peer("quiet_daemon.py")])
    server.wait(10)
    port = int(wait.until(lambda: echo.LISTENING.search(server.output()), "the daemon to listen").group(1))
    time.sleep(2.5 * IDLE_SECONDS)  # the silence itself, not a wait for anything
    check(case.layer is None or case.layer.broker_pids(), "the broker has left a process that may need it")
    echo.run_client(case, echo.python_client(case, "epoll", port, connections=1))
