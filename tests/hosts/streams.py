#!/usr/bin/env python3
"""Programs on whose connections both ends know every byte beforehand. Each does what it is told by its control socket.

  streams.py CONTROL serve ADDRESS PORT
  streams.py CONTROL run ADDRESS CLIENT PORT:COUNT...    so many connections to each port; CLIENT: a number of its own

A client sends a message, waits for an answer of the same length, and sends the next one. Messages and answers are two endless
streams; the number of the connection says where they begin. One command a line, and one answer, both JSON (see `do_...`).
"""

import errno
import json
import os
import random
import selectors
import socket
import struct
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hosts.peer import SIZES  # noqa: E402 - it is found by the line before

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
PERIOD = 1_000_003  # a prime: bytes that are lost, doubled or moved do not go unnoticed
PATTERN = random.Random(0).randbytes(PERIOD) * 2
NUMBER = struct.Struct("!Q")  # a client's first bytes
NUMBERS = 1 << 32  # for each client
AGAIN = 0.02  # seconds until a connect is tried again


class Stream:
    """One way of a connection."""

    def __init__(self, number, way):
        self.at = random.Random(f"{number}.{way}").randrange(PERIOD)

    def next(self, length):
        begin, self.at = self.at, (self.at + length) % PERIOD
        return PATTERN[begin:begin + length]


class End:
    """An end of a connection. `ready` is called with what it can do; what goes wrong there ends it (`over`)."""

    def __init__(self, program, connection):
        self.program, self.socket, self.unsent, self.awaited = program, connection, b"", READ
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def begin(self, number, sends, receives):
        self.number, self.sends, self.receives = number, Stream(number, sends), Stream(number, receives)

    def received(self):
        """What has come. None: nothing has, but it may."""
        try:
            return self.socket.recv(65536)
        except BlockingIOError:
            return None

    def compare(self, got):
        if got != self.receives.next(len(got)):
            self.program.wrong.append(f"connection {self.number}: other bytes have come than were sent")

    def send(self, data=b""):
        self.unsent += data
        if self.unsent:
            try:
                self.unsent = self.unsent[self.socket.send(self.unsent):]
            except BlockingIOError:
                pass
        self.wait_for(READ | WRITE if self.unsent else READ)

    def wait_for(self, awaited):
        if awaited != self.awaited:
            self.program.selector.modify(self.socket, awaited, self)
            self.awaited = awaited

    def leave(self):
        self.program.selector.unregister(self.socket)
        self.socket.close()


class Program:
    """`wrong`: what no kernel would have done; `ended`: connections that this program has not closed itself."""

    def __init__(self, control):
        self.selector = selectors.DefaultSelector()
        self.wrong, self.ended = [], []
        self.listen(control)

    def listen(self, control):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{control}.new")
        listener.listen()
        os.rename(f"{control}.new", control)
        self.selector.register(listener, READ, Control(self, listener))

    def run(self):
        while True:
            for key, events in self.selector.select(self.patience()):
                try:
                    key.data.ready(events)
                except OSError as error:
                    key.data.over(errno.errorcode[error.errno])

    def patience(self):
        return None

    def told(self):
        """What is wrong or has ended, once."""
        told = {"wrong": self.wrong, "ended": self.ended}
        self.wrong, self.ended = [], []
        return told


class Control:
    """The driver."""

    def __init__(self, program, listener):
        self.program, self.listener, self.lines = program, listener, None

    def ready(self, _):
        if not self.lines:
            driver, _ = self.listener.accept()
            self.lines = driver.makefile("rw")
            self.program.selector.unregister(self.listener)
            self.program.selector.register(driver, READ, self)
        elif line := self.lines.readline():
            command = json.loads(line)
            answer = getattr(self.program, f"do_{command.pop('do')}")(**command)
            self.lines.write(json.dumps(answer) + "\n")
            self.lines.flush()
        else:
            self.over("eof")

    def over(self, _):
        sys.exit()


# --- the server --------------------------------------------------------------------------------------------------------------

class Server(Program):
    def __init__(self, control, address, port):
        super().__init__(control)
        self.open = Counter()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.listener = socket.create_server((address, port), family=family, backlog=1024)
        self.listener.setblocking(False)
        self.selector.register(self.listener, READ, self)

    def ready(self, _):
        connection, _ = self.listener.accept()
        self.selector.register(connection, READ, Served(self, connection))

    def over(self, _):
        """A connection has ended before it was accepted."""

    def do_report(self):
        """`open`: so many connections by client."""
        return {"open": +self.open, **self.told()}


class Served(End):
    number = None

    def ready(self, _):
        got = self.received()
        if got == b"":
            return self.over("eof")
        if got and self.number is None:
            # The first segment of a connection, which the kernel carries, has more than the number.
            self.begin(NUMBER.unpack(got[:NUMBER.size])[0], 1, 0)
            self.program.open[self.client()] += 1
            got = got[NUMBER.size:]
        if got:
            self.compare(got)
            self.unsent += self.sends.next(len(got))
        self.send()

    def over(self, how):
        if self.number is not None:
            self.program.ended.append((self.client(), how))
            self.program.open[self.client()] -= 1
        self.leave()

    def client(self):
        return self.number // NUMBERS


# --- the client --------------------------------------------------------------------------------------------------------------

class Client(Program):
    def __init__(self, control, address, client, counts):
        super().__init__(control)
        self.address, self.next = address, client * NUMBERS
        self.calls = {}
        self.waiting = []  # times and ports of connections that are to be tried again
        for port, count in counts:
            for _ in range(count):
                self.call(port)

    def call(self, port):
        self.calls[self.next] = Call(self, self.next, port)
        self.next += 1

    def patience(self):
        now = time.monotonic()
        due = [port for at, port in self.waiting if at <= now]
        self.waiting = [(at, port) for at, port in self.waiting if at > now]
        for port in due:
            self.call(port)
        return AGAIN if self.waiting else None

    def do_close(self):
        """All of them, each after its next answer."""
        for call in self.calls.values():
            call.leaves = True

    def do_renew(self, count):
        """The oldest ones are closed after their next answers, and others begin."""
        for call in list(self.calls.values())[:count]:
            call.renews = True

    def do_report(self, since, clip=False):
        """`gaps`: by ports, the longest time between two answers, of which the later one came after `since`. `behind`: connections
        without two answers after `since`. `clip`: what was before does not count as waiting."""
        now = time.monotonic()
        gaps = {f"{call.port}>{call.to}": call.longest(since, now, clip) for call in self.calls.values() if call.answers}
        behind = [call.number for call in self.calls.values() if sum(at > since for at in call.answers[-2:]) < 2]
        return {"open": sum(call.is_open for call in self.calls.values()), "gaps": gaps, "behind": behind, **self.told()}


class Call(End):
    def __init__(self, client, number, to):
        family = socket.AF_INET6 if ":" in client.address else socket.AF_INET
        super().__init__(client, socket.socket(family))
        self.begin(number, 0, 1)
        self.to, self.is_open, self.renews, self.leaves = to, False, False, False
        self.chosen = random.Random(number)
        self.due, self.answers = 0, []
        self.awaited = WRITE
        self.failed = self.socket.connect_ex((client.address, to))
        client.selector.register(self.socket, WRITE, self)

    def ready(self, _):
        if not self.is_open:
            return self.connected()
        got = self.received()
        if got == b"":
            return self.over("eof")
        if got:
            self.compare(got)
            self.due -= len(got)
            if self.due < 0:
                self.program.wrong.append(f"connection {self.number}: more bytes have come than were sent")
            if self.due == 0:
                return self.answered()
        self.send()

    def connected(self):
        failed = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed or self.failed not in (0, errno.EINPROGRESS):
            raise OSError(failed or self.failed, "connect")
        self.is_open, self.port = True, self.socket.getsockname()[1]
        self.unsent = NUMBER.pack(self.number)
        self.ask()

    def ask(self):
        self.due = self.chosen.choice(SIZES)
        self.send(self.sends.next(self.due))

    def answered(self):
        self.answers.append(time.monotonic())
        if self.renews or self.leaves:
            self.end()
            if not self.leaves:
                self.program.call(self.to)
        else:
            self.ask()

    def end(self):
        del self.program.calls[self.number]
        self.leave()

    def over(self, how):
        self.program.ended.append((self.to, how if self.is_open else f"connect: {how}"))
        self.end()
        if not self.leaves:
            self.program.waiting.append((time.monotonic() + AGAIN, self.to))

    def longest(self, since, now, clip):
        """Forgets what was before."""
        before = [at for at in self.answers if at <= since]
        self.answers = before[-1:] + self.answers[len(before):]
        begins = [max(at, since) if clip else at for at in self.answers]
        return max(end - begin for begin, end in zip(begins, self.answers[1:] + [now]))


def main():
    control, what, address, *more = sys.argv[1:]
    if what == "serve":
        Server(control, address, int(more[0])).run()
    else:
        counts = [tuple(map(int, count.split(":"))) for count in more[1:]]
        Client(control, address, int(more[0]), counts).run()


if __name__ == "__main__":
    main()
