"""One command run in one of three ways: plain, upgraded at the first byte, and switching carrier all the time."""

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass

from testkit import leaks, procfs, wait
from testkit.failure import Failure
from testkit.process import Process
from testkit.report import Report
from testkit.sidestep import Sidestep, plain_env

PLAIN, UPGRADED, FLIP = "plain", "upgraded", "flip"
LAYERED = (UPGRADED, FLIP)
# Bytes between two changes of carrier.
FLIP_BYTES = 4000
# What the caller's shell may set and a suite must not see: it would not be the same run on the next machine.
FOREIGN = re.compile(r"PYTHON.*|SSL_.*|.*_proxy", re.IGNORECASE)
# A program that has ended may leave children that are just ending too.
LINGER_SECONDS = 15
# How long a program that is not coming back may take to say where it is.
LAST_WORDS_SECONDS = 5
POLL_SECONDS = 0.2


@dataclass
class Outcome:
    """What one command did. `code`: None, it did not end in its time."""
    code: int | None
    output: str
    report: Report
    left: list


class Way:
    """All commands of one suite that are run in one way; with Sidestep, under one broker."""

    def __init__(self, name, tmp):
        self.name = name
        self.tmp = tmp / name
        self.tmp.mkdir()
        self.runs = 0
        self.layer = self.watch = None
        self.shm_before = leaks.shm_files()
        if name != PLAIN:
            self.layer = Sidestep(f"@sidestep-suite-{os.getpid()}-{tmp.name}-{name}",
                                  flip=FLIP_BYTES if name == FLIP else 0, pairing="sync")
            # A build in the middle of a long run must not change what is tested.
            self.layer.copy_binaries(self.tmp / "bin")
            self.watch = leaks.BrokerWatch(self.layer)

    def run(self, argv, seconds, quiet=None):
        """Runs the command in a fresh directory and collects everything that it has left.

        `quiet`: it is not coming back either if it has printed nothing for so many seconds.
        """
        self.runs += 1
        directory = self.tmp / str(self.runs)
        directory.mkdir()
        environment = self.layer.env() if self.layer else plain_env()
        environment = {k: v for k, v in environment.items() if not FOREIGN.fullmatch(k)}
        environment["TMPDIR"] = str(directory)
        report = directory / "report"
        command = self.layer.command(argv, report) if self.layer else argv
        process = Process(self.name, command, directory / "log", environment, cwd=directory)
        try:
            code = wait_for(process, seconds, quiet or seconds)
            left = [] if code is None else self._left(process, directory)
        finally:
            process.destroy()
            procfs.kill_all(lambda: relatives(process, directory))
        return Outcome(code, process.output(), Report(report), left)

    @staticmethod
    def _left(process, directory):
        """The command lines of what still runs although the command has ended."""
        try:
            wait.until(lambda: not relatives(process, directory), "the children to end", LINGER_SECONDS)
        except Failure:
            return [" ".join(procfs.command_line(pid)).strip() for pid in relatives(process, directory)]
        return []

    def end(self):
        """Ends the broker. Returns what it, or the machine, has kept and should not have."""
        errors = []
        # A broker ends by itself when it has had no member for a while: then it has let go of everything.
        if self.layer is not None and self.layer.broker_pids():
            try:
                self.watch.check_clean()
                self.layer.stop_brokers()
            except (Failure, OSError, subprocess.SubprocessError) as failure:
                errors.append(str(failure))
        if new := leaks.shm_files() - self.shm_before:
            errors.append(f"files left in /dev/shm: {sorted(new)}")
        return errors

    def destroy(self):
        """The last resort on any way out."""
        if self.layer is not None:
            try:
                self.layer.stop_brokers()
            except Failure:
                pass  # it has been killed then


def wait_for(process, seconds, quiet):
    """The exit code; None if it does not come in time, after SIGABRT, at which Python tells where its threads are."""
    deadline, size, heard = time.monotonic() + seconds, 0, time.monotonic()
    while (now := time.monotonic()) < deadline and now < heard + quiet:
        try:
            return process.popen.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if (grown := process.log.stat().st_size) != size:
                size, heard = grown, time.monotonic()
    process.popen.send_signal(signal.SIGABRT)
    try:
        process.popen.wait(LAST_WORDS_SECONDS)
    except subprocess.TimeoutExpired:
        pass  # it is killed next
    return None


def relatives(process, directory):
    """What the command has started, also what has left its process group: the directory is in its environment."""
    mark = f"TMPDIR={directory}"
    marked = {p for p in procfs.all_pids() if procfs.is_running(p) and mark in procfs.environment(p)}
    return process.family() | {p for p in marked if procfs.exe_name(p) != "sidestepd"}
