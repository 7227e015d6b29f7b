#!/usr/bin/env python3
"""witness.py ROLE: the two ends of connections that tell who got where.

  witness.py server HOST PORT       answers `direct`, and prints the name that each caller gives, also in a datagram
  witness.py proxy                  as a sidecar would, at 15001 and 15006: answers `proxy`
  witness.py outbound               the same at 15001 alone, beside a sidecar that has the other port
  witness.py caller NAME HOST PORT  calls again and again, and prints, each second, what came of its calls so far
"""

import collections
import json
import socket
import sys
import threading
import time

OUTBOUND, INBOUND = 15001, 15006
PATIENCE_SECONDS, PAUSE_SECONDS = 1, 0.02


def server(host, port):
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((host, int(port)))
    threading.Thread(target=receive, args=(datagrams,)).start()
    serve(socket.create_server((host, int(port)), backlog=1024), b"direct\n", tell)


def tell(name):
    # One write, so that the lines of two threads stay apart.
    sys.stdout.write(f"{name}\n")
    sys.stdout.flush()


def receive(datagrams):
    while True:
        tell(datagrams.recv(100).decode(errors="replace").strip() or "somebody")


def proxy(*_):
    stand_in(OUTBOUND, INBOUND)


def outbound():
    stand_in(OUTBOUND)


def stand_in(*ports):
    listeners = [socket.create_server(("0.0.0.0", port), backlog=1024) for port in ports]
    for listener in listeners:
        threading.Thread(target=serve, args=(listener, b"proxy\n", lambda name: None)).start()


def serve(listener, answer, told):
    while True:
        client, (address, _) = listener.accept()
        with client:
            client.settimeout(PATIENCE_SECONDS)
            try:
                name = client.recv(100).decode().strip()
                client.sendall(answer)
            except OSError:
                name = ""
            # Who has said nothing has got here all the same.
            told(name or f"silent-{address}")


def caller(name, host, port):
    seen, told = collections.Counter(), 0.0
    while True:
        seen[call(name, host, int(port))] += 1
        if time.monotonic() - told >= 1:
            told = time.monotonic()
            print(json.dumps(seen), flush=True)
        time.sleep(PAUSE_SECONDS)


def call(name, host, port):
    try:
        with socket.create_connection((host, port), timeout=PATIENCE_SECONDS) as connection:
            connection.sendall(f"{name}\n".encode())
            return connection.recv(100).decode().strip() or "ended"
    except OSError as error:
        return type(error).__name__


if __name__ == "__main__":
    {"server": server, "proxy": proxy, "outbound": outbound, "caller": caller}[sys.argv[1]](*sys.argv[2:])
