"""What is put up for a run, or for a part of it, and is all gone afterwards."""

import contextlib
import shutil
import tempfile
from pathlib import Path

from testkit import leftovers, names
from testkit.commands import ENV, must_be_installed
from testkit.console import say


class Setup:
    """`start` puts it up, and leaves in `stack` what takes it down again: also if `start` breaks off."""

    def __init__(self):
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()

    def start(self):
        raise NotImplementedError


class Testbed(Setup):
    """The one of a whole run, on a machine that has these programs. `keep`: leave the directory with the logs."""

    def __init__(self, programs, install, keep):
        super().__init__()
        self.programs = programs
        self.install = install
        self.keep = keep
        self.env = ENV

    def start(self):
        must_be_installed(self.programs, self.install)
        leftovers.sweep()
        self.directory = Path(tempfile.mkdtemp(prefix=names.of_this_run("")))
        self.stack.callback(self.remove_directory)

    def remove_directory(self):
        if self.keep:
            say(f"logs are in {self.directory}")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)
