"""Echo servers and clients of the project in several languages: how each is started and what it must print."""

import re
import sys

from testkit import paths
from testkit.failure import check

LISTENING = re.compile(r"listening on (\d+)")


def start_server(case, argv, role="server"):
    """Starts an echo server and returns the port that it prints."""
    process = case.start(role, argv)
    return int(process.wait_output(LISTENING, 30).group(1))


def run_client(case, argv, role="client", **options):
    """Runs an echo client to its end; it must have checked something."""
    result = case.run_json(role, argv, seconds=60, **options)
    check(result["bytes"] > 0 and result["connections"] > 0, f"the client checked nothing: {result}")


def python_server(case, mode):
    return [sys.executable, case.peer("echo_server.py"), "--mode", mode]


def python_client(case, mode, port, connections=6):
    return [sys.executable, case.peer("echo_client.py"), "--mode", mode, "--port", str(port),
            "--connections", str(connections)]


def node_server(case):
    return [paths.program("node"), case.peer("echo_server.js")]


def node_client(case, port, connections=30):
    return [paths.program("node"), case.peer("echo_client.js"), str(port), str(connections)]
