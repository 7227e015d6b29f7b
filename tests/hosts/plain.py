#!/usr/bin/env python3
"""A server and a client that measure one connection.

  plain.py serve ADDRESS PORT            prints "ready" once it listens
  plain.py run ADDRESS PORT SECONDS      prints a JSON object: `bulk`, bytes in a second; `requests`, of 128 bytes, in a second
"""

import json
import socket
import sys
import threading
import time

SMALL = 128
BLOCK = bytes(1 << 20)


def serve(address, port):
    with socket.create_server((address, port)) as listener:
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection):
    """The first byte says what follows: requests, or bytes that are only counted, up to the end."""
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if connection.recv(1) == b"r":
            while got := connection.recv(SMALL, socket.MSG_WAITALL):
                connection.sendall(got)
            return
        buffer, total = bytearray(len(BLOCK)), 0
        while got := connection.recv_into(buffer):
            total += got
        connection.sendall(str(total).encode())


def requests(address, port, seconds):
    with socket.create_connection((address, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"r")
        count, began = 0, time.monotonic()
        while time.monotonic() < began + seconds:
            connection.sendall(BLOCK[:SMALL])
            connection.recv(SMALL, socket.MSG_WAITALL)
            count += 1
        return count / (time.monotonic() - began)


def bulk(address, port, seconds):
    with socket.create_connection((address, port)) as connection:
        connection.sendall(b"b")
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            connection.sendall(BLOCK)
        connection.shutdown(socket.SHUT_WR)
        total = int(connection.makefile().read())
        return total / (time.monotonic() - began)


def main():
    what, address, port, *seconds = sys.argv[1:]
    if what == "serve":
        serve(address, int(port))
    measured = {one.__name__: one(address, int(port), float(seconds[0])) for one in (bulk, requests)}
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
