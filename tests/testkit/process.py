"""One started program: its log, its end, and nothing left of it afterwards."""

import contextlib
import signal
import subprocess

from testkit import procfs, wait
from testkit.failure import Failure

# A program that ends by our SIGTERM ends well; a wrapper tells the same as 128 + 15.
GOOD_ENDS = {0, -signal.SIGTERM, 128 + signal.SIGTERM}


class Process:
    """Runs in a session of its own, so that the whole family can be found and ended by its group."""

    def __init__(self, role, argv, log, env, cwd=None, stdin=subprocess.DEVNULL,
                 stop_signal=signal.SIGTERM):
        self.role = role
        self.log = log
        self.stop_signal = stop_signal
        self.ended = False  # seen to end well
        with open(log, "ab") as output:
            self.popen = subprocess.Popen(
                [str(a) for a in argv], stdin=stdin, stdout=output, stderr=subprocess.STDOUT,
                env=env, cwd=cwd, start_new_session=True)
        self.pid = self.popen.pid

    def must_run(self):
        """Raises if the program has ended, which a server must not do by itself."""
        code = self.popen.poll()
        if code is not None:
            raise Failure(f"{self.role} ended by itself ({describe_end(code)}):\n{self.tail()}")

    def output(self):
        return self.log.read_text(errors="replace")

    def lines(self):
        """The lines that the program has printed, without the one that it is just printing."""
        return self.output().split("\n")[:-1]

    def tail(self, lines=15):
        return "\n".join(f"    {self.role}| {line}" for line in self.output().splitlines()[-lines:])

    def wait_output(self, pattern, seconds=20.0):
        """Waits until the program has printed something that the compiled pattern finds."""
        return wait.until(lambda: pattern.search(self.output()),
                          f"{self.role} to print /{pattern.pattern}/", seconds, self.must_run)

    def wait(self, seconds, good=frozenset({0})):
        """Waits for the program's own end and checks its exit code."""
        try:
            code = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.role} did not end within {seconds:g} s:\n{self.tail()}") from None
        if code not in good:
            raise Failure(f"{self.role} failed ({describe_end(code)}):\n{self.tail()}")
        wait.until(lambda: not self.family(), f"the children of {self.role} to end", seconds)
        self.ended = True
        return code

    def stop(self, seconds=15.0):
        """Asks a server to end and checks that it ends well, with all its children."""
        self.must_run()
        self.popen.send_signal(self.stop_signal)
        self.wait(seconds, GOOD_ENDS)

    def family(self):
        """Running members of the program's group. A broker that `sidestep run` started is not one of them."""
        return {p for p in procfs.group_members(self.pid) if procfs.exe_name(p) != "sidestepd"}

    def destroy(self):
        """The last resort on any way out: kills what is left, never raises."""
        procfs.kill_all(self.family)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(5)


def describe_end(code):
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
