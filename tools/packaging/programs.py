"""The built programs, stripped, and what `sidestep` itself says for its packages."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "libsidestep.so"


class Missing(Exception):
    """Something that has to be there first; the message says how it gets there."""


def run(*words, **options):
    """The command's output; an error says what the command said."""
    done = subprocess.run([str(word) for word in words], capture_output=True, **options)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise Missing(f"{' '.join(str(word) for word in words)}: exit code {done.returncode}: {said}")
    return done.stdout


class Programs:
    """`directories`: where they were built, the first that has one counts."""

    def __init__(self, directories, work):
        self.directories = [Path(directory) for directory in directories]
        self.work = Path(work)
        self.work.mkdir(parents=True, exist_ok=True)

    def has(self, name):
        return any((directory / name).is_file() for directory in self.directories)

    def built(self, name):
        for directory in self.directories:
            if (directory / name).is_file():
                return directory / name
        listed = ", ".join(str(directory) for directory in self.directories)
        raise Missing(f"no {name} in {listed}: make deb and make image build it")

    def stripped(self, name):
        """A copy without symbols: a tenth of the size, and the same for every path that it was built in."""
        copy = self.work / name
        run("strip", "--strip-unneeded", "--remove-section=.comment", "-o", copy, self.built(name))
        return copy

    def completions(self, shell):
        return run(self.built("sidestep"), "completions", shell)


def version():
    """The workspace's."""
    return re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]


def epoch():
    """The time that all files get: of the last commit, or what SOURCE_DATE_EPOCH says."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    return int(run("git", "-C", ROOT, "log", "-1", "--format=%ct"))
