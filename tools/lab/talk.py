"""A process that answers each line it is told with a line of JSON."""

import json
import select
import subprocess
import time

from .netns import MORTAL


class Talk:
    def __init__(self, lab, name, argv, environment=None, **options):
        self._lab = lab
        self.popen = lab.start(
            name, [*MORTAL, *argv], environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
        )
        self._read = b""

    def ask(self, line, limit):
        self.tell(line)
        return self.answer(limit)

    def tell(self, line):
        try:
            self.popen.stdin.write(line.encode() + b"\n")
            self.popen.stdin.flush()
        except BrokenPipeError:
            self.popen.wait()
            self._lab.fail(self.popen, f"has ended before '{line}'")

    def answer(self, limit):
        return json.loads(self.line(limit))

    def line(self, limit):
        """The next line of its output; an error if it ends or takes longer than `limit` seconds."""
        deadline = time.monotonic() + limit
        while b"\n" not in self._read:
            ready, _, _ = select.select([self.popen.stdout], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                self._lab.fail(self.popen, f"no answer after {limit:.0f} s")
            piece = self.popen.stdout.read1(1 << 16)
            if not piece:
                self.popen.wait()
                self._lab.fail(self.popen, f"ended with {self.popen.returncode}")
            self._read += piece
        line, self._read = self._read.split(b"\n", 1)
        return line.decode()

    def end(self, limit):
        """Waits until it has ended by itself, as it should after its last answer."""
        try:
            status = self.popen.wait(limit)
        except subprocess.TimeoutExpired:
            self._lab.fail(self.popen, f"has not ended after {limit:.0f} s")
        if status:
            self._lab.fail(self.popen, f"ended with {status}")

    def stop(self):
        self._lab.stop(self.popen)
