"""A client and a server peer that talk on several connections, alone or through a sidecar, and the account of what each
has sent and seen."""

import os
import signal
import subprocess
from functools import partial
from pathlib import Path

from chaos.progress import Progress, flows, kind
from testkit import procfs, sidestep, wait
from testkit.failure import Failure, check
from testkit.process import Process
from testkit.report import Report

MODES = ("block", "poll", "epoll", "epollet")
OTHER = {"client": "server", "server": "client"}
SOURCES = [Path(__file__).parent / name for name in ("peer.c", "stream.c", "blocking.c", "epoll.c", "relay.c")]
KILLED = {-signal.SIGKILL, 128 + signal.SIGKILL}


def build(binary):
    """Compiles the program of both sides."""
    options = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-pthread"]
    subprocess.run(["cc", *options, "-o", binary, *SOURCES], check=True)


class Pair:
    """All processes, started and connected. `layer` None: plain kernel TCP."""

    # In the order of the connections.
    ROLES = ("client", "server")

    def __init__(self, directory, binary, layer, choose, connections=None):
        self.directory = directory
        self.binary = binary
        self.layer = layer
        self.connections = connections or choose.randint(4, 9)
        self.seed = choose.getrandbits(60)
        self.modes = {role: choose.choice(MODES) for role in self.ROLES}
        self.progress = {role: Progress(directory / f"{role}.progress", self.connections) for role in self.ROLES}
        self.processes = {}
        # Called with each process but the first whose connections are all closed, before it is let go, and with those
        # of its peers that are still there.
        self.inspect = lambda role, present: None
        self.last = choose.choice(self.ROLES)

    def __str__(self):
        return f"{self.connections} connections, " + ", ".join(f"{role} {mode}" for role, mode in self.modes.items())

    # --- life ---------------------------------------------------------------------------------

    def start(self):
        port = []
        for role in reversed(self.ROLES):
            self.spawn(role, *port)
            if role != "client":
                progress = self.progress[role]
                wait.until(lambda progress=progress: progress.port, f"the {role} to listen", 20, self.must_run)
                port = [str(progress.port)]
        wait.until(lambda: all(progress.ready for progress in self.progress.values()),
                   "all connections to be made", 20, self.must_run)

    def spawn(self, role, *more):
        argv = [self.binary, role, self.modes[role], str(self.connections), str(self.progress[role].path),
                str(self.seed), *more]
        argv, env = self.wrapped(role, argv)
        self.processes[role] = Process(role, argv, self.directory / f"{role}.log", env)

    def wrapped(self, side, argv):
        """How the peer is really started: (arguments, environment)."""
        if self.layer is None:
            return argv, sidestep.plain_env()
        return self.layer.command(argv, self.report_path(side)), self.layer.env()

    def must_run(self, roles=None):
        for role in roles or self.processes:
            self.processes[role].must_run()

    def send(self, role, sig):
        """A signal to the peer itself, not to a `sidestep run` that waits for it."""
        os.kill(self.progress[role].pid, sig)

    def finish(self):
        """The ordinary end: the client stops writing, all read to the end, every byte is accounted for."""
        self.send("client", signal.SIGTERM)
        self.wait_done(self.ROLES)
        for number in range(self.connections):
            for writer in OTHER:
                sent = self.progress[writer].entry(number)
                seen = self.progress[OTHER[writer]].entry(number)
                check(sent.written == seen.verified and seen.end == "ended",
                      f"connection {number} ({kind(number)}): {writer} wrote {sent.written} bytes, "
                      f"its peer saw {seen.verified}, then {seen.end}")
        self.let_go(self.ROLES)

    def wait_done(self, roles, seconds=30):
        """Waits until these have closed all their connections."""
        for role in roles:
            wait.until(lambda role=role: self.progress[role].done, f"the {role}'s connections to end", seconds,
                       partial(self.must_run, roles))

    def let_go(self, roles):
        """Ends these, one after the other; those that see others go are looked at before it is their turn."""
        present = sorted(roles, key=lambda role: role == self.last)
        for role in list(present):
            if len(present) < len(self.ROLES):
                self.inspect(role, [other for other in present if other != role])
            self.progress[role].let_go()
            self.processes[role].wait(20)
            present.remove(role)

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
        survivors = self.bury(victim)
        for number in range(self.connections):
            complete = kind(number) != "duplex" or number in delivered
            self.check_account(number, victim, OTHER[victim], complete)
        self.let_go(survivors)

    def bury(self, victim):
        """Waits for the end of the victim, and of all connections of the others; returns who these are."""
        code = self.processes[victim].popen.wait(10)
        check(code in KILLED, f"{victim} ended with {code} at SIGKILL")
        survivors = [role for role in self.ROLES if role != victim]
        self.wait_done(survivors)
        return survivors

    def check_account(self, number, writer, reader, complete):
        sent, seen = self.progress[writer].entry(number), self.progress[reader].entry(number)
        told = (f"connection {number} ({kind(number)}): {writer} had written {sent.written} bytes "
                f"(up to {sent.writing} in progress), {reader} saw {seen.verified}, then {seen.end}")
        check(seen.end in ("ended", "reset"), f"no end of stream: {told}")
        check(seen.verified <= sent.writing, f"more bytes than were written: {told}")
        check(seen.verified >= sent.written or not complete, f"bytes lost: {told}")

    # --- reports ------------------------------------------------------------------------------

    def report_path(self, side):
        return self.directory / f"{side}.report"

    def ring_bytes(self):
        """Bytes by ring of all processes that lived to write a report."""
        return sum(Report(self.report_path(role)).ring for role in self.ROLES)

    def reports(self):
        return "; ".join(str(Report(self.report_path(role))) for role in self.ROLES)

    def returned(self):
        """How many connections were returned to the kernel, over all processes."""
        return sum(Report(self.report_path(role)).returned for role in self.ROLES)

    def reasons(self):
        """Names of the reasons that any process gives."""
        return {name for role in self.ROLES for name in Report(self.report_path(role)).reasons()}


class Chain(Pair):
    """A client, a sidecar and a server: every byte is carried twice."""

    ROLES = ("client", "sidecar", "server")

    def survive(self, victim, delivered):
        """As for a pair. Bytes that a killed sidecar had read and not yet written are lost with it, on any carrier."""
        if victim != "sidecar":
            return super().survive(victim, delivered)
        survivors = self.bury(victim)
        for number in range(self.connections):
            for writer, reader in OTHER.items():
                self.check_account(number, writer, reader, complete=False)
        return self.let_go(survivors)


def all_threads_stopped(pid):
    """Whether a SIGSTOP has reached every thread."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        raise Failure(f"process {pid} is gone") from None
    states = [procfs.stat(f"{pid}/task/{task}") for task in tasks]
    return all(fields and fields[0] in "Tt" for fields in states)
