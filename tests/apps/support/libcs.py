"""C libraries: how programs of peers/libc are compiled for each, and folders with programs of other releases of Debian."""

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from testkit import paths
from testkit.failure import Failure, check

SOURCES = paths.PEERS / "libc"
OPTIONS = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wno-deprecated-declarations", "-pthread"]


class Libc:
    """A C library with a compiler for it."""

    def __init__(self, name, compiler, options=()):
        self.name = name
        self.compiler = compiler
        self.options = options

    def program(self, *sources, options=()):
        """A program made of these sources, which may be its only libc's."""
        return self._build(sources, tuple(options))

    def library(self, source, options=()):
        """A library, to be preloaded."""
        return self._build((source,), ("-shared", "-fPIC", *options))

    @functools.cache  # noqa: B019 - there are three of these, which live as long as the program
    def _build(self, sources, options):
        made = _directory() / "-".join([self.name, *(word.strip("-=.").replace("/", "_") for word in sources + options)])
        flags = self.options() if callable(self.options) else self.options
        done = subprocess.run([paths.program(self.compiler), *OPTIONS, *flags, "-o", made,
                               *(SOURCES / name for name in sources), *options, "-ldl"],
                              capture_output=True, text=True, timeout=60)
        check(done.returncode == 0, f"{self.compiler} does not compile {sources} for {self.name}: {done.stderr}")
        return made


@functools.cache
def _directory():
    directory = Path(tempfile.mkdtemp(prefix="sidestep-libc-"))
    directory.chmod(0o755)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


class Root:
    """The files of a Debian release, as tools/install-deps has put them into target/."""

    def __init__(self, release, loader, libraries):
        self.path = paths.ROOT / "target" / release
        self._loader = loader
        self.libraries = [self.path / directory for directory in libraries]

    def file(self, relative):
        found = self.path / relative
        if not found.exists():
            raise Failure(f"no {found}: run tools/install-deps test (for slow tests: compat)")
        return found

    @property
    def loader(self):
        return self.file(self._loader)

    def command(self, program):
        """One of its programs, started by its own loader."""
        return [self.loader, "--library-path", ":".join(map(str, self.libraries)), self.file(program)]

    def compiler_options(self):
        """Has this machine's compiler make programs that are linked against the older libc, and run with it."""
        libraries = self.path / "usr/lib/x86_64-linux-gnu"
        return [f"--sysroot={self.path}", f"-B{libraries}", f"-L{libraries}", "-isystem", self.path / "usr/include",
                f"-Wl,--dynamic-linker={self.loader}", f"-Wl,-rpath,{self.libraries[0]}", "-Wl,--disable-new-dtags"]


# glibc 2.31.
DEBIAN_11 = Root("debian11", "lib64/ld-linux-x86-64.so.2", ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"])
# glibc 2.41 and musl 1.2.5.
DEBIAN_13 = Root("debian13", "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", ["usr/lib/x86_64-linux-gnu"])
HOST = Libc("glibc", "gcc")
MUSL = Libc("musl", "musl-gcc")
OLD = Libc("glibc-2.31", "gcc", DEBIAN_11.compiler_options)
