"""A client and a server peer that talk on several connections, and the account of what each has sent and seen."""

import os
import signal
import subprocess
from pathlib import Path

from progress import Progress, flows, kind
from support import procfs, sidestep, wait
from support.failure import Failure, check
from support.process import Process
from support.report import Report

MODES = ("block", "poll", "epoll", "epollet")
OTHER = {"client": "server", "server": "client"}
SOURCES = [Path(__file__).parent / name for name in ("peer.c", "stream.c", "blocking.c", "epoll.c")]
KILLED = {-signal.SIGKILL, 128 + signal.SIGKILL}


def build(binary):
    """Compiles the program of both sides."""
    options = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-pthread"]
    subprocess.run(["cc", *options, "-o", binary, *SOURCES], check=True)


class Pair:
    """Both processes, started and connected. `layer` None: plain kernel TCP."""

    def __init__(self, directory, binary, layer, choose, connections=None):
        self.directory = directory
        self.binary = binary
        self.layer = layer
        self.connections = connections or choose.randint(4, 9)
        self.seed = choose.getrandbits(60)
        self.modes = {side: choose.choice(MODES) for side in OTHER}
        self.progress = {side: Progress(directory / f"{side}.progress", self.connections) for side in OTHER}
        self.processes = {}

    def __str__(self):
        return f"{self.connections} connections, client {self.modes['client']}, server {self.modes['server']}"

    # --- life ---------------------------------------------------------------------------------

    def start(self):
        server, client = self.progress["server"], self.progress["client"]
        self.spawn("server")
        wait.until(lambda: server.port, "the server to listen", 20, self.must_run)
        self.spawn("client", str(server.port))
        wait.until(lambda: server.ready and client.ready, "all connections to be made", 20, self.must_run)

    def spawn(self, side, *more):
        argv = [self.binary, side, self.modes[side], str(self.connections), str(self.progress[side].path),
                str(self.seed), *more]
        argv, env = self.wrapped(side, argv)
        self.processes[side] = Process(side, argv, self.directory / f"{side}.log", env)

    def wrapped(self, side, argv):
        """How the peer is really started: (arguments, environment)."""
        if self.layer is None:
            return argv, sidestep.plain_env()
        return self.layer.command(argv, self.report_path(side)), self.layer.env()

    def must_run(self):
        for process in self.processes.values():
            process.must_run()

    def send(self, side, sig):
        """A signal to the peer itself, not to a `sidestep run` that waits for it."""
        os.kill(self.progress[side].pid, sig)

    def finish(self):
        """The ordinary end: the client stops writing, both read to the end, every byte is accounted for."""
        self.send("client", signal.SIGTERM)
        for process in self.processes.values():
            process.wait(20)
        for number in range(self.connections):
            for writer in OTHER:
                sent = self.progress[writer].entry(number)
                seen = self.progress[OTHER[writer]].entry(number)
                check(sent.written == seen.verified and seen.end == "ended",
                      f"connection {number} ({kind(number)}): {writer} wrote {sent.written} bytes, "
                      f"its peer saw {seen.verified}, then {seen.end}")

    def destroy(self):
        for process in self.processes.values():
            process.destroy()
        for progress in self.progress.values():
            progress.close()

    def logs(self):
        return "\n".join(text for process in self.processes.values() if (text := process.tail()))

    # --- progress -----------------------------------------------------------------------------

    def verified(self):
        """Bytes seen so far in each direction that carries a stream, by (connection, writer)."""
        return {(number, writer): self.progress[OTHER[writer]].entry(number).verified
                for number in range(self.connections) for writer in flows(number)}

    def wait_bytes(self, count, what, seconds=20):
        """Waits until every stream has moved on by so many bytes."""
        start = self.verified()
        wait.until(lambda: all(now >= start[flow] + count for flow, now in self.verified().items()),
                   f"{count} bytes on every connection {what}", seconds, self.must_run)

    # --- what must be true after a kill -------------------------------------------------------

    def survive(self, victim, delivered):
        """After `victim` was killed: its peer must see every byte that was written, then the end, and end itself.

        `delivered`: connections whose kernel queues were seen empty at the kill. On kernel TCP a stream that runs
        both ways may lose bytes that are still on their way when the peer's kernel answers with a reset, so the
        full account of those is asked for only where nothing was on its way in the kernel.
        """
        survivor = OTHER[victim]
        code = self.processes[victim].popen.wait(10)
        check(code in KILLED, f"{victim} ended with {code} at SIGKILL")
        self.processes[survivor].wait(20)
        for number in range(self.connections):
            complete = kind(number) != "duplex" or number in delivered
            self.check_account(number, victim, survivor, complete)

    def check_account(self, number, victim, survivor, complete):
        sent, seen = self.progress[victim].entry(number), self.progress[survivor].entry(number)
        told = (f"connection {number} ({kind(number)}): {victim} had written {sent.written} bytes "
                f"(up to {sent.writing} in progress), {survivor} saw {seen.verified}, then {seen.end}")
        check(seen.end in ("ended", "reset"), f"no end of stream: {told}")
        check(seen.verified <= sent.writing, f"more bytes than were written: {told}")
        check(seen.verified >= sent.written or not complete, f"bytes lost: {told}")

    # --- reports ------------------------------------------------------------------------------

    def report_path(self, side):
        return self.directory / f"{side}.report"

    def ring_bytes(self):
        """Bytes by ring of all processes that lived to write a report."""
        return sum(Report(self.report_path(side)).ring for side in OTHER)

    def reports(self):
        return "; ".join(str(Report(self.report_path(side))) for side in OTHER)


def all_threads_stopped(pid):
    """Whether a SIGSTOP has reached every thread."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        raise Failure(f"process {pid} is gone") from None
    states = [procfs.stat(f"{pid}/task/{task}") for task in tasks]
    return all(fields and fields[0] in "Tt" for fields in states)
