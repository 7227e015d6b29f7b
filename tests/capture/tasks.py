"""Functions that run in a pod: each in a process of its own, which is in the pod's namespace and cgroup."""

import contextlib
import encodings.idna  # noqa: F401 - sockets want it, and whoever has become somebody else may not be able to read it
import os
import pickle
import select
import signal
import sys
import time
import traceback

from testkit.failure import Failure

# Whose a process is: (user, group).
PROGRAM = (1000, 1000)
PROXY = (1337, 1337)
ROOT = (0, 0)
# Those that have not been asked for their outcome.
running = set()
# None needs so long.
SECONDS = 60


class Task:
    """A function that has been started. It ends when its process does."""

    def __init__(self, enter, owner, function, args):
        self.name = getattr(function, "__name__", "task")
        self.answer, answer = os.pipe()
        stop, self.stop_end = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.answer)
            os.close(self.stop_end)
            live(enter, owner, answer, lambda: function(*args, *stopper(function, stop)))
        os.close(answer)
        os.close(stop)
        running.add(self)

    def stop(self, seconds=SECONDS):
        """Asks it to come to an end; its outcome."""
        os.write(self.stop_end, b".")
        return self.result(seconds)

    def result(self, seconds=SECONDS):
        """What the function returns, or the exception that it ended with."""
        try:
            text = self.read(time.monotonic() + seconds)
        finally:
            self.end()
        if not text:
            raise Failure(f"{self.name} ended without an answer")
        value, error, trace = pickle.loads(text)
        if error is None:
            return value
        error.add_note(trace)
        raise error

    def read(self, deadline):
        text = b""
        while True:
            if not select.select([self.answer], [], [], max(0, deadline - time.monotonic()))[0]:
                raise Failure(f"{self.name} did not end in time")
            chunk = os.read(self.answer, 1 << 16)
            if not chunk:
                return text
            text += chunk

    def end(self):
        running.discard(self)
        os.close(self.answer)
        os.close(self.stop_end)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def end_all():
    for task in list(running):
        task.end()


def stopper(function, stop):
    """A function whose last parameter is `stopped` is given one to ask."""
    code = getattr(function, "__code__", None)
    if code is None or "stopped" not in code.co_varnames[:code.co_argcount]:
        return ()
    return (lambda: bool(select.select([stop], [], [], 0)[0]),)


def live(enter, owner, answer, work):
    """The whole life of the process, which must not go on as the one that it was forked from."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        with open(answer, "wb", closefd=False) as file:
            file.write(told(enter, owner, work))
    finally:
        os._exit(0)


def told(enter, owner, work):
    """The outcome, as it is sent."""
    try:
        enter()
        become(owner)
        outcome = (work(), None, "")
    except Exception as error:  # noqa: BLE001 - it is raised again for whoever asks
        outcome = (None, error, traceback.format_exc())
    try:
        return pickle.dumps(outcome)
    except Exception as error:  # noqa: BLE001
        return pickle.dumps((None, Failure(f"cannot be told: {outcome!r}: {error}"), ""))


def become(owner):
    user, group = owner
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
