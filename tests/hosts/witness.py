#!/usr/bin/env python3
"""A program that tells all that it learns of its connections.

  witness.py serve ADDRESS PORT               accepts connections
  witness.py dial ADDRESS PORT SOURCE COUNT   connects to so many ports in sequence, each from another one

It sends back what comes. For each connection it prints one line of JSON, once it is over: the peer's `port`, `got`, all bytes in
base64, and `end`: "eof", or the name of the error.
"""

import base64
import errno
import json
import socket
import sys
import threading


def tell(port, got, end):
    line = json.dumps({"port": port, "got": base64.b64encode(got).decode(), "end": end})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def echo(connection, port):
    got = bytearray()
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while part := connection.recv(65536):
            got += part
            connection.sendall(part)
        end = "eof"
    except OSError as error:
        end = errno.errorcode[error.errno]
    tell(port, bytes(got), end)
    connection.close()


def serve(family, address, port):
    listener = socket.create_server((address, port), family=family, backlog=512)
    while True:
        connection, peer = listener.accept()
        threading.Thread(target=echo, args=(connection, peer[1]), daemon=True).start()


def dial(family, address, port, source):
    connection = socket.socket(family)
    try:
        connection.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", source))
        connection.connect((address, port))
    except OSError as error:
        tell(port, b"", f"connect: {errno.errorcode[error.errno]}")
        return
    echo(connection, port)


def main():
    what, address, port, *more = sys.argv[1:]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if what == "serve":
        serve(family, address, int(port))
    source, count = map(int, more)
    for number in range(count):
        threading.Thread(target=dial, args=(family, address, int(port) + number, source + number)).start()


if __name__ == "__main__":
    main()
