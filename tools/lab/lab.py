"""Starts processes, and stops every one of them again: at the end, on an error, on Ctrl-C."""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from . import procfs, settings
from .errors import LabError

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class Lab:
    """A scratch directory and the processes of a measurement.

    The lab is the subreaper of all it starts: what forks away and loses its parent (the broker,
    a worker of a killed server) becomes our child, is counted, and is stopped with the rest.
    """

    def __init__(self):
        self.folder = None
        self._running = []
        self._handlers = {}

    def __enter__(self):
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise LabError(f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(ctypes.get_errno())}")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, _interrupt)
        self.folder = Path(tempfile.mkdtemp(prefix="sidestep-lab-"))
        self.folder.chmod(0o755)  # servers that drop privileges must reach their files
        return self

    def __exit__(self, *_):
        for number in self._handlers:  # a second Ctrl-C must not leave anything behind
            signal.signal(number, signal.SIG_IGN)
        try:
            self._stop_all()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def start(self, name, argv, env, **options):
        """Starts a process; its output goes to a log in the scratch directory unless options say otherwise."""
        log = self.folder / f"{name}.log"
        with open(log, "ab") as out:
            options.setdefault("stdout", out)
            options.setdefault("stdin", subprocess.DEVNULL)
            # A session of its own: Ctrl-C reaches us alone, and we stop it in order.
            try:
                popen = subprocess.Popen(argv, env=env, stderr=out, start_new_session=True, **options)
            except OSError as why:
                raise LabError(f"cannot start {name}: {argv[0]}: {why.strerror}") from why
        popen.name, popen.log = name, log
        self._running.append(popen)
        return popen

    @contextlib.contextmanager
    def scope(self):
        """Stops what was started within, newest first."""
        before = len(self._running)
        try:
            yield
        finally:
            for popen in reversed(self._running[before:]):
                self.stop(popen)

    def stop(self, popen):
        """SIGTERM and, after a while, SIGKILL for the process and its descendants."""
        if popen in self._running:
            self._running.remove(popen)
        if popen.poll() is None:
            popen.terminate()
            try:
                popen.wait(settings.STOP_LIMIT)
            except subprocess.TimeoutExpired:
                for stat in procfs.tree(popen.pid):
                    _kill(stat.pid, signal.SIGKILL)
                popen.wait()
        for stream in (popen.stdin, popen.stdout):
            if stream:
                stream.close()

    def fail(self, popen, what):
        """An error that carries the end of the process's own words."""
        tail = "\n  ".join(popen.log.read_text(errors="replace").splitlines()[-8:])
        raise LabError(f"{popen.name}: {what}; it said:\n  {tail or '(nothing)'}")

    def wait_ready(self, popen, ready):
        """Waits until `ready()` is true, which may raise OSError until then."""
        deadline = time.monotonic() + settings.START_LIMIT
        while time.monotonic() < deadline:
            if popen.poll() is not None:
                self.fail(popen, f"ended with {popen.returncode} at its start")
            with contextlib.suppress(OSError):
                if ready():
                    return
            time.sleep(0.02)
        self.fail(popen, f"does not answer after {settings.START_LIMIT:.0f} s")

    def _stop_all(self):
        for popen in reversed(list(self._running)):
            self.stop(popen)
        # What is left are orphans that came to us: the broker, or workers of a killed server.
        for number, patience in ((signal.SIGTERM, settings.STOP_LIMIT), (signal.SIGKILL, 5)):
            deadline = time.monotonic() + patience
            for pid in _orphans():
                _kill(pid, number)
            while _orphans() and time.monotonic() < deadline:
                time.sleep(0.02)


def _orphans():
    """Descendants that still run; dead ones are reaped on the way."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return [stat.pid for stat in procfs.tree(os.getpid()) if stat.pid != os.getpid()]


def _kill(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _interrupt(number, _frame):
    raise KeyboardInterrupt(signal.Signals(number).name)
