"""Load on two hosts by programs whose streams both ends know (streams.py), and what their connections have come to."""

import json
import socket
import sys
import time
from pathlib import Path

from hosts.world import PORT
from testkit.failure import Failure
from testkit.wait import until

STREAMS = Path(__file__).with_name("streams.py")
# Port of the server that is killed at times.
MORTAL_PORT = PORT + 1
# What a program may learn of a peer that is killed: the kernel says no other things.
ENDS = {"eof", "ECONNRESET", "EPIPE"}
# Nobody listens; or the server was killed between the handshake and accept(2).
NOBODY_LISTENS = {"connect: ECONNREFUSED", "connect: ECONNRESET"}
# What a program may learn of a connection that it makes while a device is down.
NO_WAY = {"connect: ENETUNREACH", "connect: EHOSTUNREACH"}
PATIENCE = 60


class Driven:
    """A program of streams.py."""

    numbers = 0

    def __init__(self, host, role, *words):
        Driven.numbers += 1
        control = host.bed.directory / f"{role}-{Driven.numbers}.control"
        self.process = host.program(role, [sys.executable, STREAMS, control, *words])
        until(control.exists, f"{role} to begin", 20, self.process.must_run)
        self.driver = socket.socket(socket.AF_UNIX)
        self.driver.settimeout(PATIENCE)
        self.driver.connect(str(control))
        self.lines = self.driver.makefile("rw")

    def ask(self, do, **command):
        try:
            self.lines.write(json.dumps({"do": do, **command}) + "\n")
            self.lines.flush()
            line = self.lines.readline()
        except OSError as error:
            line = f"{error}: "
        if not line.startswith("{") and line != "null\n":
            raise Failure(f"the {self.process.role} does not answer: {line}\n{self.process.tail()}")
        return json.loads(line)

    def report(self, **how):
        """Fails if a byte was wrong."""
        said = self.ask("report", **how)
        if said["wrong"]:
            raise Failure(f"the {self.process.role}: {said['wrong'][:3]}")
        return said

    def kill(self):
        self.process.popen.kill()
        self.process.popen.wait()
        self.leave()

    def stop(self):
        """It ends by itself when nobody drives it."""
        self.leave()
        self.process.wait(PATIENCE)

    def leave(self):
        self.lines.close()
        self.driver.close()


class Load:
    """Two clients and two servers, of which one each is mortal. A quarter of the connections is the mortal client's, a quarter goes to
    the mortal server, and half of them are between the others."""

    def __init__(self, hosts, connections):
        self.hosts, self.connections, self.clients = hosts, connections, 0
        self.since = 0.0
        self.few = connections // 4
        self.server, self.mortal_server = self.start_server(PORT), self.start_server(MORTAL_PORT)
        self.client = self.start_client({PORT: connections - 2 * self.few, MORTAL_PORT: self.few})
        self.mortal_client = self.start_client({PORT: self.few})

    def start_server(self, port):
        return Driven(self.hosts.server, "server", "serve", self.hosts.server.addresses[4], port)

    def start_client(self, counts):
        self.clients += 1
        counts = [f"{port}:{count}" for port, count in counts.items()]
        return Driven(self.hosts.client, "client", "run", self.hosts.server.addresses[4], self.clients, *counts)

    def mark(self):
        """Waits of the connections count from now on."""
        self.since = time.monotonic()

    def renew(self, count):
        """So many connections are closed, and others begin, which the stack has not given back yet."""
        self.client.ask("renew", count=count - count // 4)
        self.mortal_client.ask("renew", count=count // 4)

    def end(self):
        """All connections are closed by their clients, and the programs end."""
        for client in (self.client, self.mortal_client):
            client.ask("close")
        until(lambda: not any(server.report()["open"] for server in (self.server, self.mortal_server)),
              "all connections to be closed", PATIENCE)
        for program in (self.client, self.mortal_client, self.server, self.mortal_server):
            program.stop()

    def kill_client(self):
        """Its server must learn what the kernel says of programs that are killed. Another client takes its place."""
        self.mortal_client.kill()
        dead, ends = self.clients, []

        def has_none():
            said = self.server.report()
            ends.extend(how for client, how in said["ended"] if client == dead)
            return str(dead) not in said["open"]
        until(has_none, "the server to hear of its client's end", PATIENCE)
        must_be_ends(ends, ENDS)
        self.mortal_client = self.start_client({PORT: self.few})

    def kill_server(self):
        """Its client must learn that, too. Another server takes its place."""
        self.mortal_server.kill()
        ends = []

        def has_none():
            said = self.client.report(since=self.since)
            ends.extend(how if to == MORTAL_PORT else "of another server" for to, how in said["ended"])
            return said["open"] == self.connections - 2 * self.few
        until(has_none, "the client to hear of its server's end", PATIENCE)
        must_be_ends(ends, ENDS | NOBODY_LISTENS)
        self.mortal_server = self.start_server(MORTAL_PORT)

        def is_back():
            said = self.client.report(since=self.since)
            must_be_ends([how for _, how in said["ended"]], NOBODY_LISTENS)
            return said["open"] == self.connections - self.few
        until(is_back, "the client to connect again", PATIENCE)

    def recovered(self, up=None):
        """Waits until each connection has got two answers since the mark. Returns the longest time between two answers of each, of
        which the later one came after the mark; by its ports. `up`: before this time there was no way, and nobody waited for it."""
        gaps, behind = {}, []

        def has_recovered():
            for server in (self.server, self.mortal_server):
                must_be_ends([how for _, how in server.report()["ended"]], {"eof"})  # as its client closes
            said = [client.report(since=up or self.since, clip=bool(up)) for client in (self.client, self.mortal_client)]
            for one in said:
                must_be_ends([how for _, how in one["ended"]], NO_WAY if up else set())
                gaps.update(one["gaps"])
            behind[:] = [number for one in said for number in one["behind"]]
            return not behind and sum(one["open"] for one in said) == self.connections
        try:
            until(has_recovered, "all connections to go on", PATIENCE)
        except Failure as failure:
            raise Failure(f"{failure}; {len(behind)} do not: {behind[:5]}") from None
        return gaps


def must_be_ends(ends, permitted):
    if others := set(ends) - permitted:
        raise Failure(f"connections have ended with {sorted(others)}; only {sorted(permitted)} may be")
