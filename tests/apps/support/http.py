"""The checking HTTP client, run against a server or a proxy in front of it."""

import sys

from testkit.failure import check


def command(case, port, directory, *options):
    """The command line of peers/http_check.py."""
    return [sys.executable, case.peer("http_check.py"), "--port", str(port), "--directory", str(directory),
            *map(str, options)]


def check_bodies(case, port, directory, connections=4, rounds=3, role="client"):
    """Fetches all files over kept connections, whole and in ranges; every body must be the file."""
    result = case.run_json(role, command(case, port, directory, "--connections", connections, "--rounds", rounds))
    files = sum(1 for path in directory.iterdir() if path.is_file())
    check(result["requests"] >= connections * rounds * files, f"too few requests: {result}")
    check(result["retries"] == 0, f"the server closed connections that it should keep: {result}")
