#!/usr/bin/env python3
"""Builds the Kubernetes programs of the tests from Go modules into target/kube/bin, once.

  tests/kube/build.py           does nothing if they are there and of the version in modules/go.mod

modules/go.mod and go.sum name every byte that goes in. The first build takes about ten minutes on two processors.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "apps")]

from support.failure import Failure  # noqa: E402
from support.paths import TARGET, program  # noqa: E402

MODULES = HERE / "modules"
WORK = TARGET / "kube"
BINARIES = WORK / "bin"
# What they are built from; another content means another build.
STAMP = BINARIES / "built-from"
PROGRAMS = ("kube-proxy", "kube-apiserver", "kube-controller-manager")
BUILD_SECONDS = 3600
# The first one (as in 1.21) that knows how to get a newer release.
OLDEST_GO = 21


def version():
    found = re.search(r"^require k8s\.io/kubernetes (v1\.(\d+)\.\d+)$", (MODULES / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise Failure(f"{MODULES / 'go.mod'} does not say which version of k8s.io/kubernetes is required")
    return found.groups()


def link_flags():
    """As Kubernetes' own build says which version it is: programs refuse to work with one that is unknown."""
    whole, minor = version()
    names = {"component-base/version.gitVersion": whole, "component-base/version.gitMajor": "1",
             "component-base/version.gitMinor": minor, "client-go/pkg/version.gitVersion": whole}
    return "-s -w " + " ".join(f"-X k8s.io/{name}={value}" for name, value in names.items())


def wanted_stamp():
    return "".join((MODULES / name).read_text() for name in ("go.mod", "go.sum"))


def is_built():
    return STAMP.exists() and STAMP.read_text() == wanted_stamp() and all((BINARIES / p).exists() for p in PROGRAMS)


def environment():
    """Caches below target/, which `cargo clean` removes too."""
    own = {"GOPATH": str(WORK / "go"), "GOCACHE": str(WORK / "cache"), "GOTOOLCHAIN": "auto", "CGO_ENABLED": "0",
           "GOFLAGS": "-mod=mod -buildvcs=false -modcacherw"}
    return {**os.environ, **own}


def go_command():
    """A Go that can fetch the release that go.mod asks for, if it is not that one itself."""
    go = program("go")
    found = re.search(r"go1\.(\d+)", subprocess.run([go, "version"], capture_output=True, text=True).stdout)
    if not found or int(found.group(1)) < OLDEST_GO:
        raise Failure(f"{go} is older than 1.{OLDEST_GO}: install a newer one from https://go.dev/dl first in PATH")
    return go


def build(say=print):
    if is_built():
        return
    go = go_command()
    # A copy, since go completes go.mod while it builds.
    source = WORK / "src"
    shutil.copytree(MODULES, source, dirs_exist_ok=True)
    BINARIES.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        started = time.monotonic()
        say(f"building {name} {version()[0]}")
        command = [go, "build", "-trimpath", "-ldflags", link_flags(), "-o", str(BINARIES / name),
                   f"k8s.io/kubernetes/cmd/{name}"]
        done = subprocess.run(command, cwd=source, env=environment(), capture_output=True, text=True,
                              timeout=BUILD_SECONDS)
        if done.returncode != 0:
            raise Failure(f"{name} cannot be built ({' '.join(command)} in {source}):\n{done.stderr[-2000:]}")
        say(f"built {name} in {time.monotonic() - started:.0f} s")
    STAMP.write_text(wanted_stamp())


if __name__ == "__main__":
    try:
        build()
    except Failure as failure:
        sys.exit(f"tests/kube/build.py: {failure}")
