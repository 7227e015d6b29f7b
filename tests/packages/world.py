"""What the cases share: a temporary directory, packages that are built once, and a small Debian in which they are installed."""

import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from testkit.commands import run
from testkit.failure import Failure, check
from testkit.paths import ROOT, TARGET

# What the packages depend on, and what a user looks at them with.
INCLUDE = "libelf1,libgcc-s1,man-db,bash-completion,systemd"
BUILD_SECONDS = 400
# A Debian with servers has some hundred packages.
DEBIAN_SECONDS = 900


class Debian:
    """A small Debian of this machine's release, below which nothing is written."""

    def __init__(self, name, packages):
        self.root, self.packages = TARGET / name, packages

    def make(self):
        """Once; outside of the test's namespaces, since it comes from a mirror."""
        made_of = self.root.with_suffix(".made-of")
        if made_of.exists() and made_of.read_text() == self.packages:
            return
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.parent.mkdir(exist_ok=True)
        suite = run("sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME").strip()
        include = f"--include={self.packages}"
        run("mmdebstrap", "--quiet", "--variant=minbase", include, suite, self.root, mirror(), seconds=DEBIAN_SECONDS)
        made_of.write_text(self.packages)


# In which cases run whose module names no other.
DEBIAN = Debian("packages-root", INCLUDE)


class World:
    def __init__(self, directories):
        self.directories = directories
        self.tmp = Path(tempfile.mkdtemp(prefix="sidestep-packages-"))

    def __enter__(self):
        run("mount", "--make-rprivate", "/")
        run("ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.tmp, ignore_errors=True)

    def program(self, name):
        for directory in self.directories:
            if (directory / name).is_file():
                return directory / name
        raise Failure(f"no {name} in {', '.join(map(str, self.directories))}: run cargo build, or name --programs")

    def package(self, what, output, *more):
        """tools/package with the programs under test."""
        words = [word for directory in self.directories for word in ("--programs", directory)]
        run(ROOT / "tools" / "package", what, *words, "--output", output, "--quick", *more, seconds=BUILD_SECONDS)
        return output

    @functools.cached_property
    def debs(self):
        return self.package("deb", self.tmp / "deb")

    @functools.cached_property
    def next_debs(self):
        """The same programs as a later version."""
        return self.package("deb", self.tmp / "next", "--version", "99.0")

    @functools.cached_property
    def image(self):
        return self.package("image", self.tmp / "image")

    def installation(self, debian=DEBIAN):
        return Installation(debian.root, self.tmp)


def mirror():
    """Debian's own among the mirrors that apt is configured with."""
    given = os.environ.get("DEBIAN_MIRROR")
    targets = run("apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Created-By: Packages").splitlines()
    found = [words[1] for words in map(str.split, targets) if words[0] == "Debian" and "security" not in words[1]]
    check(given or found, "apt is not configured with a Debian mirror; name one: DEBIAN_MIRROR=http://...")
    return given or found[0]


class Installation:
    """The small Debian under an overlay: what changes is in `upper`."""

    def __init__(self, lower, tmp):
        self.base = Path(tempfile.mkdtemp(prefix="root-", dir=tmp))
        self.upper, self.root = self.base / "upper", self.base / "root"
        for directory in (self.upper, self.root, self.base / "work"):
            directory.mkdir()
        options = f"lowerdir={lower},upperdir={self.upper},workdir={self.base / 'work'}"
        run("mount", "-t", "overlay", "-o", options, "overlay", self.root)
        run("mount", "-t", "proc", "proc", self.root / "proc")
        run("mount", "--bind", "/dev", self.root / "dev")
        run("mount", "-t", "tmpfs", "tmpfs", self.root / "run")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "--lazy", "--recursive", self.root], check=False)

    def run(self, *words, seconds=60):
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        return run("chroot", self.root, *words, env=env, seconds=seconds)

    def start(self, *words):
        """In the background. `env NAME=VALUE` before the command: chroot itself is of the machine."""
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        return subprocess.Popen(["chroot", self.root, *words], env=env, stdin=subprocess.DEVNULL)

    def install(self, directory, *more):
        """All packages of a directory."""
        inside = self.root / "run" / "debs"
        shutil.rmtree(inside, ignore_errors=True)
        inside.mkdir()
        for file in directory.glob("*.deb"):
            shutil.copy(file, inside)
        names = [f"/run/debs/{file.name}" for file in sorted(inside.iterdir())]
        return self.run("dpkg", "--install", *more, *names, seconds=120)

    def processes(self):
        """Those whose root this is."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(process / "root") == str(self.root):
                    found.append(process.name)
        return found

    def changed(self):
        """Paths that are there and were not before, but for what dpkg, logs and caches always write."""
        ours = {"var/lib/dpkg", "var/log", "var/cache", "var/lib/systemd/deb-systemd-helper-masked", "run", "proc", "dev"}
        found = []
        for folder, directories, names in os.walk(self.upper):
            relative = Path(folder).relative_to(self.upper)
            directories[:] = [name for name in directories if str(relative / name) not in ours]
            found += [str(relative / name) for name in names if not is_whiteout(Path(folder) / name)]
        return sorted(found)


def is_whiteout(path):
    """How an overlay says that a file of below is gone."""
    status = path.lstat()
    return status.st_rdev == 0 and (status.st_mode & 0o170000) == 0o020000
