"""Programs that come from PyPI, in the project's own environment target/venv."""

from pathlib import Path

from . import paths
from .failure import Failure


def program(name):
    """A program of the environment. Its files must be readable for whoever is to run it."""
    found = Path(paths.ROOT / "target" / "venv" / "bin" / name)
    if not found.exists():
        raise Failure(f"no {name} in target/venv: run tools/install-deps compat")
    return str(found)
