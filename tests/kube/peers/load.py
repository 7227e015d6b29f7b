#!/usr/bin/env python3
"""Connects to Services continuously, and keeps one connection to each in constant use.

  load.py HOST:PORT...

Prints `ready` when every one has answered. Ends with its input, and then prints what has happened as a JSON object.
"""

import json
import select
import socket
import struct
import sys
import time

PATIENCE_SECONDS = 3.0
PAUSE_SECONDS = 0.002
ABORT = struct.pack("ii", 1, 0)


def split(word):
    host, port = word.rsplit(":", 1)
    return host.strip("[]"), int(port)


def connect(to):
    client = socket.create_connection(to, PATIENCE_SECONDS)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
    return client, client.recv(200)


def ask_kept(client):
    client.sendall(b"still there?")
    if not client.recv(200):
        raise ConnectionResetError("the connection has ended")


def main():
    places = [split(word) for word in sys.argv[1:]]
    kept = {to: connect(to)[0] for to in places}
    counts = {"connections": 0, "exchanges": 0, "failures": []}
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        for to in places:
            try:
                client, name = connect(to)
                client.close()
                if not name:
                    raise ConnectionResetError("nobody said who it was")
                counts["connections"] += 1
            except OSError as error:
                counts["failures"].append(f"{time.monotonic():.3f} s: connect to {to}: {error}")
            try:
                ask_kept(kept[to])
                counts["exchanges"] += 1
            except OSError as error:
                counts["failures"].append(f"{time.monotonic():.3f} s: kept connection to {to}: {error}")
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
