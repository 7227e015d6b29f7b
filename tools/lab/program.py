"""The small programs of `sidestep-bench`: one process, or a server and its client."""

import contextlib
import json
import os
import selectors
import subprocess
import time

from . import settings


class Programs:
    def __init__(self, lab, places, starter):
        self._lab, self._starter = lab, starter
        self._binary = places.built("sidestep-bench")

    def single(self, variant, program, *options):
        """The JSON that a program without roles prints."""
        with self._lab.scope():
            popen = self._start(variant, program, "", options, self._starter.report())
            return self._result(popen)

    def pair(self, variant, program, server=(), client=()):
        """Runs both ends once: the server's JSON (or None), the client's, and the library's report."""
        report = self._starter.report()
        with self.open_pair(variant, program, server, client, report) as (server_end, client_end):
            answer = self._result(client_end)
            return self._result(server_end), answer, report.total()

    @contextlib.contextmanager
    def open_pair(self, variant, program, server, client, report):
        """(server, client), running for as long as the context lasts."""
        with self._lab.scope():
            listening = self._start(variant, program, "server", server, report)
            port = self.first_line(listening).removeprefix("port ")
            yield listening, self._start(variant, program, "client", (*client, "--port", port), report)

    def finish(self, popen):
        """Ends the program's standard input and waits for the program."""
        popen.stdin.close()
        popen.stdin = None
        self._result(popen)

    def _start(self, variant, program, role, options, report):
        argv = [self._binary, program, *(["--role", role] if role else []), *options]
        name = "-".join(filter(None, (program, role, variant.name)))
        pipe = subprocess.PIPE
        return self._starter.start(variant, name, argv, report, stdout=pipe, stdin=pipe)

    def first_line(self, popen, limit=settings.START_LIMIT):
        """The program's next line; only for programs that print one and then wait."""
        deadline = time.monotonic() + limit
        got = b""
        with selectors.DefaultSelector() as selector:
            selector.register(popen.stdout, selectors.EVENT_READ)
            while not got.endswith(b"\n"):
                if not selector.select(max(0, deadline - time.monotonic())):
                    self._lab.fail(popen, f"printed no line within {limit:.0f} s")
                more = os.read(popen.stdout.fileno(), 4096)
                if not more:
                    popen.wait(settings.STOP_LIMIT)
                    self._lab.fail(popen, f"ended with {popen.returncode} at its start")
                got += more
        return got.decode().strip()

    def _result(self, popen):
        """Waits for the end; what the program printed as JSON, or None."""
        try:
            out, _ = popen.communicate(timeout=60 + settings.RUN_SLACK)
        except subprocess.TimeoutExpired:
            self._lab.fail(popen, "does not end")
        if popen.returncode != 0:
            self._lab.fail(popen, f"ended with {popen.returncode}")
        lines = out.decode().splitlines()
        return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None
