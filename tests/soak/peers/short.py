"""Thousands of short connections to every service in turn, each ended in another way; every answer is checked.

Ways: the server ends it, the client ends it after several answers, the client resets it, the client sends nothing.
"""

import argparse
import json
import socket
import struct
import sys
import time

HTTP = b"GET /hello HTTP/1.1\r\nHost: soak\r\n%s\r\n"
# What to ask, what the answer ends with, and how to have the server end the connection (None: it will not).
TALK = {
    "http": (HTTP % b"", b"hello\n", HTTP % b"Connection: close\r\n"),
    "redis": (b"PING\r\n", b"+PONG\r\n", None),
    "memcached": (b"version\r\n", b"\r\n", b"quit\r\n"),
}
# A worker that a reload ends closes kept connections between two requests, as it must.
TALK["http-once"] = (*TALK["http"][:2], None)
RESET = struct.pack("ii", 1, 0)
WAYS = ("server", "client", "reset", "nothing")


def answer(connection, ending):
    got = b""
    while not got.endswith(ending):
        more = connection.recv(4096)
        if not more:
            raise ValueError(f"the connection ended after {got!r}")
        got += more


def one(port, protocol, way):
    ask, ending, last = TALK[protocol]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        if way == "nothing":
            return
        for _ in range(1 if protocol == "http-once" else 3):
            connection.sendall(ask)
            answer(connection, ending)
        if way == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        elif way == "server" and last is not None:
            connection.sendall(last)
            if protocol == "http":
                answer(connection, ending)
            if connection.recv(1):
                raise ValueError("bytes after the end")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, required=True, help="connections in all, at most")
    parser.add_argument("--seconds", type=float, required=True, help="and no longer than this")
    parser.add_argument("targets", nargs="+", metavar="NAME=PROTOCOL:PORT")
    options = parser.parse_args()
    targets = []
    for word in options.targets:
        name, _, address = word.partition("=")
        protocol, _, port = address.partition(":")
        targets.append((name, protocol, int(port)))
    done = {name: 0 for name, _, _ in targets}
    deadline = time.monotonic() + options.seconds
    for number in range(options.count):
        name, protocol, port = targets[number % len(targets)]
        one(port, protocol, WAYS[number // len(targets) % len(WAYS)])
        done[name] += 1
        if time.monotonic() > deadline:
            break
    print(json.dumps(done))


if __name__ == "__main__":
    sys.exit(main())
