#!/usr/bin/env python3
"""A server that answers with what it got (each piece N times, with --times N), and a client that compares every byte.

  peer.py serve ADDRESS PORT [--option LEVEL.NUMBER=VALUE] [--times N]
  peer.py run ADDRESS PORT --connections N --rounds N --seed N [--until FILE] [--lives N] [--bulk N] [--burst BYTES] [--pause MS]
              [--bulk-until FILE] [--unread BYTES] [--sizes N,N,...] [--congestion NAME] [--keepalive SECONDS [--rest SECONDS | --gone]]

The client's last line is a JSON object: `bytes` that came back; `wrong`, what did not come back as it was sent; `seconds` that
all connections together took, that the `slowest` exchange of each took, and that `--unread` waited for bytes at most (`stall`).
"""

import argparse
import itertools
import json
import random
import selectors
import socket
import threading
import time
from pathlib import Path

SILENCE = 2  # seconds: the kernel's second to last probe of a closed window has passed, and the next one is far
SIZES = [1, 7, 100, 128, 1000, 1447, 1448, 1449, 4000, 9000]


def serve(address, port, option, times):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=512)
    listener.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    unsent = {}
    while True:
        for key, events in selector.select():
            if key.fileobj is listener:
                accept(listener, selector, unsent, option)
            elif not echo(key.fileobj, events, selector, unsent, times):
                selector.unregister(key.fileobj)
                del unsent[key.fileobj]
                key.fileobj.close()


def accept(listener, selector, unsent, option):
    connection, _ = listener.accept()
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if option:
        connection.setsockopt(*option)
    unsent[connection] = b""
    selector.register(connection, selectors.EVENT_READ)


def echo(connection, events, selector, unsent, times):
    """False: the stream is over."""
    try:
        if events & selectors.EVENT_READ:
            got = connection.recv(65536)
            if not got:
                return False
            unsent[connection] += got * times
        if unsent[connection]:
            sent = connection.send(unsent[connection])
            unsent[connection] = unsent[connection][sent:]
    except BlockingIOError:
        pass
    except OSError:
        return False
    wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if unsent[connection] else 0)
    selector.modify(connection, wanted)
    return True


class Client:
    def __init__(self, args):
        self.args = args
        self.bytes = 0
        self.seconds = 0
        self.slowest = {}
        self.stall = 0
        self.wrong = []
        self.lock = threading.Lock()

    def lives(self, number):
        """One connection after the other."""
        for life in range(self.args.lives):
            self.one(number + life * self.args.connections)

    def one(self, number):
        chosen = random.Random(self.args.seed * 1000 + number)
        began = time.monotonic()
        try:
            with self.connected(number) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self.args.bulk_until:
                    self.bulk(connection, chosen, number, itertools.takewhile(self.is_bulk_time, itertools.count()))
                self.exchanges(connection, chosen, number)
                if self.args.rest:
                    time.sleep(self.args.rest)
                    self.exchanges(connection, chosen, number)
                if self.args.gone:
                    self.wait_for_silence(connection)
                    return
                self.bulk(connection, chosen, number, range(self.args.bulk))
                if self.args.burst:
                    self.burst(connection, chosen.randbytes(self.args.burst), f"{number}.burst")
                if self.args.unread:
                    self.unread(connection, chosen.randbytes(self.args.unread), f"{number}.unread")
                if connection.getpeername()[:2] != (self.args.address, self.args.port):
                    raise ValueError(f"the peer is {connection.getpeername()} by now")
        except (OSError, ValueError) as error:
            with self.lock:
                self.wrong.append(f"connection {number}: {error}")
        with self.lock:
            self.seconds += time.monotonic() - began

    def bulk(self, connection, chosen, number, turns):
        for turn in turns:
            self.exchange(connection, chosen.randbytes(40000 // self.args.times), f"{number}.bulk{turn}")

    def is_bulk_time(self, _turn):
        return not self.args.bulk_until.exists()

    def exchanges(self, connection, chosen, number):
        for round_number in itertools.count():
            if self.is_over(round_number):
                return
            began = time.monotonic()
            self.exchange(connection, chosen.randbytes(chosen.choice(self.args.sizes)), f"{number}.{round_number}")
            self.slowest[number] = max(self.slowest.get(number, 0), time.monotonic() - began)
            time.sleep(self.args.pause / 1000)

    def is_over(self, rounds):
        """Whether so many rounds are enough."""
        return self.args.until.exists() if self.args.until else rounds >= self.args.rounds

    def wait_for_silence(self, connection):
        """Until keepalive tells that the peer is gone."""
        print("waits", flush=True)
        try:
            connection.recv(1)
        except TimeoutError:
            return
        raise ValueError("the peer is there")

    def connected(self, number):
        connection = socket.socket(socket.AF_INET6 if ":" in self.args.address else socket.AF_INET)
        if self.args.keepalive:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, self.args.keepalive)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
        if self.args.congestion:
            # By sysctl a namespace gets only what any user may choose.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self.args.congestion.encode())
        if self.args.burst:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)  # a window that closes soon
        if self.args.source:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            connection.bind(("", self.args.source + number % self.args.connections))
        connection.connect((self.args.address, self.args.port))
        return connection

    def burst(self, connection, sent, where):
        """Sends everything, and reads nothing for a while."""
        sender = threading.Thread(target=connection.sendall, args=(sent,))
        sender.start()
        time.sleep(1)
        self.read_back(connection, sent, where)
        sender.join()

    def unread(self, connection, sent, where):
        """Reads nothing of the answer until no more of it can come."""
        connection.sendall(sent)
        print("reads nothing", flush=True)
        time.sleep(SILENCE)
        self.stall = self.read_back(connection, sent * self.args.times, where)

    def exchange(self, connection, sent, where):
        connection.sendall(sent)
        self.read_back(connection, sent * self.args.times, where)

    def read_back(self, connection, sent, where):
        """Returns the seconds of the longest wait for bytes."""
        got, longest = b"", 0
        while len(got) < len(sent):
            began = time.monotonic()
            part = connection.recv(65536)
            longest = max(longest, time.monotonic() - began)
            if not part:
                raise ValueError(f"{where}: the stream ended after {len(got)} of {len(sent)} bytes")
            got += part
        if got != sent:
            raise ValueError(f"{where}: other bytes came back")
        with self.lock:
            self.bytes += len(got)
        return longest

    def run(self):
        threads = [threading.Thread(target=self.lives, args=(number,)) for number in range(self.args.connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps({"bytes": self.bytes, "wrong": self.wrong, "seconds": self.seconds, "slowest": [*self.slowest.values()],
                          "stall": self.stall}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["serve", "run"])
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--until", type=Path, metavar="FILE", help="instead of a number of rounds: they go on until this file is there")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sizes", type=lambda text: [*map(int, text.split(","))], default=SIZES, help="of messages, in bytes")
    parser.add_argument("--burst", type=int, default=0, help="at the end, so many bytes at once")
    parser.add_argument("--unread", type=int, default=0, help="then a message of so many bytes, whose answer is read two seconds later")
    parser.add_argument("--bulk", type=int, default=0, help="then so many messages, each with an answer of 40,000 bytes")
    parser.add_argument("--bulk-until", type=Path, metavar="FILE", help="such messages first of all, until this file is there")
    parser.add_argument("--times", type=int, default=1, help="how many times an answer has what was sent")
    parser.add_argument("--option", type=lambda text: tuple(map(int, text.replace("=", ".").split("."))),
                        help="of each accepted socket: three numbers")
    parser.add_argument("--source", type=int, default=0, help="source port of the first connection; others have the next ones")
    parser.add_argument("--congestion", help="control of congestion: its name")
    parser.add_argument("--lives", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--keepalive", type=int, default=0, help="seconds until the first probe; two more follow")
    parser.add_argument("--rest", type=float, default=0, help="seconds without a byte; the rounds follow once more")
    parser.add_argument("--gone", action="store_true", help="then keepalive must tell that the peer is gone")
    args = parser.parse_args()
    if args.what == "serve":
        serve(args.address, args.port, args.option, args.times)
    else:
        Client(args).run()


if __name__ == "__main__":
    main()
