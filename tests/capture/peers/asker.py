#!/usr/bin/env python3
"""A program of a pod: asker.py HOST PORT COUNT. Says COUNT things to a program that says everything back, and prints in JSON
what greeted it, how many bytes it has sent and received, and how many answers were other bytes than it had said."""

import json
import random
import socket
import sys

MOST = 3000
PATIENCE = 20


def exactly(sock, size):
    parts = []
    while size:
        data = sock.recv(size)
        if not data:
            raise ConnectionError("closed too early")
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def line(sock):
    text = b""
    while not text.endswith(b"\n"):
        text += exactly(sock, 1)
    return text


def main(host, port, count):
    dice = random.Random(count)
    with socket.create_connection((host, port), PATIENCE) as sock:
        greeting = line(sock)
        sent = wrong = 0
        for _ in range(count):
            said = dice.randbytes(dice.randrange(1, MOST))
            sock.sendall(said)
            wrong += exactly(sock, len(said)) != said
            sent += len(said)
        told = {"peer": sock.getpeername()[:2], "bytes": len(greeting) + 2 * sent, "wrong": wrong}
    print(json.dumps(json.loads(greeting) | told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
