#!/usr/bin/env python3
"""Builds the programs of Kubernetes and of Istio that the tests run from Go modules into target/kube/bin, once.

  tests/kube/build.py           does nothing if they are there and of the versions in the go.mod below modules/

go.mod and go.sum fix the content of every source. The first build takes about ten minutes on two processors, and six
more for Istio.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from testkit.failure import Failure
from testkit.paths import ROOT, TARGET, program

HERE = Path(__file__).resolve().parent
WORK = TARGET / "kube"
BINARIES = WORK / "bin"
BUILD_SECONDS = 3600
# The first one (as in 1.21) that knows how to get a newer release.
OLDEST_GO = 21
OWN_GO = ROOT / "target" / "lab-tools" / "go" / "bin" / "go"


class Module:
    """A folder with go.mod and go.sum, and the programs that are built from it: their packages by their names."""

    folder: Path
    # go changes go.mod while it builds, so it works in a copy.
    source: Path
    # A copy of the go.mod and go.sum of the last build; if these differ, the programs are built again.
    stamp: Path
    programs: dict
    # The go.mod that says which version is wanted.
    version_line: re.Pattern
    # What go does with a package, further words for it, and variables beside those of `environment`.
    verb = ("build",)
    flags = ()
    variables = {}
    # The go.sum of programs that need more than others of the same go.mod: more checksums, for the same versions.
    sums = None

    def go_files(self):
        if self.sums:
            return [self.folder / "go.mod", self.sums]
        return [file for file in self.folder.iterdir() if file.is_file()]

    def file(self, name):
        return next(file for file in self.go_files() if file.name == name)

    def version(self):
        found = self.version_line.search(self.file("go.mod").read_text())
        if not found:
            raise Failure(f"{self.file('go.mod')} has no line like {self.version_line.pattern}")
        return found.groups()

    def constants(self):
        """Values of Go variables that the linker sets, such as versions, as in the programs' own builds."""
        return {}

    def wanted_stamp(self):
        return "".join(self.file(name).read_text() for name in ("go.mod", "go.sum"))

    def is_built(self):
        return (self.stamp.exists() and self.stamp.read_text() == self.wanted_stamp()
                and all((BINARIES / program).exists() for program in self.programs))

    def build(self, say):
        if self.is_built():
            return
        go = go_command()
        self.source.mkdir(parents=True, exist_ok=True)
        for file in self.go_files():
            shutil.copy(file, self.source)
        BINARIES.mkdir(parents=True, exist_ok=True)
        flags = "-s -w " + " ".join(f"-X {name}={value}" for name, value in self.constants().items())
        for name, package in self.programs.items():
            started = time.monotonic()
            say(f"building {name} {self.version()[0]}")
            command = [go, *self.verb, "-trimpath", *self.flags, "-ldflags", flags, "-o", str(BINARIES / name), package]
            done = subprocess.run(command, cwd=self.source, env={**environment(), **self.variables}, capture_output=True,
                                  text=True, timeout=BUILD_SECONDS)
            if done.returncode != 0:
                raise Failure(f"{name} cannot be built ({' '.join(command)} in {self.source}):\n{done.stderr[-2000:]}")
            say(f"built {name} in {time.monotonic() - started:.0f} s")
        self.finish(go)
        self.stamp.write_text(self.wanted_stamp())

    def finish(self, go):
        """Further files that the tests need."""


class Kubernetes(Module):
    folder = HERE / "modules"
    source = WORK / "src"
    stamp = BINARIES / "built-from"
    programs = {name: f"k8s.io/kubernetes/cmd/{name}"
                for name in ("kube-proxy", "kube-apiserver", "kube-controller-manager")}
    version_line = re.compile(r"^require k8s\.io/kubernetes (v1\.(\d+)\.\d+)$", re.MULTILINE)

    def constants(self):
        """Programs refuse to work with a server whose version is unknown."""
        whole, minor = self.version()
        return {"k8s.io/component-base/version.gitVersion": whole, "k8s.io/component-base/version.gitMajor": "1",
                "k8s.io/component-base/version.gitMinor": minor, "k8s.io/client-go/pkg/version.gitVersion": whole}

    def sources(self):
        """Where go has put them; they are there once something was built from them."""
        return WORK / "go" / "pkg" / "mod" / "k8s.io" / f"kubernetes@{self.version()[0]}"


class Istio(Module):
    """istiod is called pilot-discovery here."""

    folder = HERE / "modules" / "istio"
    source = WORK / "src-istio"
    stamp = BINARIES / "built-from-istio"
    programs = {name: f"istio.io/istio/pilot/cmd/{name}" for name in ("pilot-agent", "pilot-discovery")}
    # Istio itself has no version that go accepts; its interfaces are released along with it.
    version_line = re.compile(r"^replace istio\.io/api => istio\.io/api v(1\.\d+\.\d+)$", re.MULTILINE)
    # Files that an image and a chart would contain: Envoy's bootstrap configuration, and the CustomResourceDefinitions.
    bootstrap, kinds = WORK / "istio" / "envoy_bootstrap.json", WORK / "istio" / "crd-all.gen.yaml"
    files = {"tools/packaging/common/envoy_bootstrap.json": bootstrap,
             "manifests/charts/base/files/crd-all.gen.yaml": kinds}

    def constants(self):
        names = ("buildVersion", "buildTag")
        return {f"istio.io/istio/pkg/version.{name}": self.version()[0] for name in names}

    def is_built(self):
        return super().is_built() and all(file.exists() for file in self.files.values())

    def finish(self, go):
        command = [go, "list", "-f", "{{.Module.Dir}}", next(iter(self.programs.values()))]
        done = subprocess.run(command, cwd=self.source, env=environment(), capture_output=True, text=True, check=True)
        for name, file in self.files.items():
            file.parent.mkdir(exist_ok=True)
            shutil.copyfile(Path(done.stdout.strip(), name), file)


KUBERNETES, ISTIO = Kubernetes(), Istio()
MODULES = (KUBERNETES, ISTIO)


def environment():
    """Caches below target/, which `cargo clean` removes too."""
    own = {"GOPATH": str(WORK / "go"), "GOCACHE": str(WORK / "cache"), "GOTOOLCHAIN": "auto", "CGO_ENABLED": "0",
           "GOFLAGS": "-mod=mod -buildvcs=false -modcacherw"}
    return {**os.environ, **own}


def go_command():
    """A Go of the release that go.mod requires, or one that can fetch it. tools/install-deps brings one where the machine's is older."""
    places = [program("go"), *map(str, [OWN_GO] if OWN_GO.exists() else [])]
    for go in places:
        found = re.search(r"go1\.(\d+)", subprocess.run([go, "version"], capture_output=True, text=True).stdout)
        if found and int(found.group(1)) >= OLDEST_GO:
            return go
    raise Failure(f"{' and '.join(places)}: older than 1.{OLDEST_GO}: run tools/install-deps kube")


def build(say=print, modules=MODULES):
    for module in modules:
        module.build(say)


if __name__ == "__main__":
    try:
        build()
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        sys.exit(f"tests/kube/build.py: {failure}")
