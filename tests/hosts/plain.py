#!/usr/bin/env python3
"""A server and a client that measure one connection at a time, on one processor.

  plain.py serve ADDRESS PORT            prints "ready" once it listens
  plain.py run ADDRESS PORT TIMES        prints a JSON object: nanoseconds of processor time of both, by `byte` of bulk, and by `request`
                                         of 128 bytes that is answered by as many; for each a list of so many results

Processor time depends little on what else the machine does. What the kernel does with packets is a part of it: it does most of that on
top of whoever sends. (On kernels that account for it separately, CONFIG_IRQ_TIME_ACCOUNTING, less is seen.)
"""

import json
import os
import socket
import struct
import sys
import time

SECONDS = 0.25
SMALL = 128
BLOCK = bytes(1 << 20)
# The server's last words: how many bytes it has got, and its nanoseconds.
SUMMARY = struct.Struct("!QQ")


def serve(address, port):
    with socket.create_server((address, port)) as listener:
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                answer(connection)


def answer(connection):
    """The first byte says whether requests follow, which are answered, or bytes that are only counted."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    is_answered = connection.recv(1) == b"r"
    buffer, total, began = bytearray(SMALL if is_answered else len(BLOCK)), 0, time.process_time_ns()
    while got := connection.recv_into(buffer, 0, socket.MSG_WAITALL if is_answered else 0):
        total += got
        if is_answered:
            connection.sendall(buffer)
    connection.sendall(SUMMARY.pack(total, time.process_time_ns() - began))


def measured(address, port, kind, work):
    """Nanoseconds of both ends, and bytes, of as much work as fits into a time."""
    with socket.create_connection((address, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(kind)
        end, began = time.monotonic() + SECONDS, time.process_time_ns()
        while time.monotonic() < end:
            work(connection)
        used = time.process_time_ns() - began
        connection.shutdown(socket.SHUT_WR)
        total, of_server = SUMMARY.unpack(connection.recv(SUMMARY.size, socket.MSG_WAITALL))
        return used + of_server, total


def ask(connection):
    connection.sendall(BLOCK[:SMALL])
    connection.recv(SMALL, socket.MSG_WAITALL)


def main():
    what, address, port, *times = sys.argv[1:]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if what == "serve":
        serve(address, int(port))
    kinds = {"byte": (b"b", lambda connection: connection.sendall(BLOCK), 1), "request": (b"r", ask, SMALL)}
    found = {name: [] for name in kinds}
    for _ in range(int(times[0])):
        for name, (kind, work, size) in kinds.items():
            used, total = measured(address, int(port), kind, work)
            found[name].append(used * size / total)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
