"""Ports and plain sockets of the harness itself (never preloaded)."""

import random
import socket

from testkit import wait
from testkit.failure import Failure

LOOPBACK = "127.0.0.1"

# Below the range from which the kernel takes ports for outgoing connections (32768 and up),
# so that no connection of a busy machine can take the port between our look and the server's bind.
PORT_RANGE = range(20_000, 32_000)


def free_port():
    """A TCP port that nobody listens on now."""
    choose = random.SystemRandom()
    for _ in range(200):
        port = choose.choice(PORT_RANGE)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                return port
            except OSError:
                continue
    raise Failure(f"no free TCP port between {PORT_RANGE.start} and {PORT_RANGE.stop}")


def listens(port, host=LOOPBACK):
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False


def wait_port(port, process, seconds=20.0):
    """Waits until `process` listens on `port`, or fails at once if the process has ended."""
    wait.until(lambda: listens(port), f"{process.role} to listen on port {port}", seconds, process.must_run)
