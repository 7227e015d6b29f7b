"""Pods whose proxy only records: peers/recorder.py says how each connection looks from the proxy's end."""

import contextlib
import json
import socket

from capture import clients
from capture.envoy import INBOUND, OUTBOUND
from capture.tasks import PROXY

# The last part of the addresses of such a pod.
NUMBER = 5
NAME = "bare"


@contextlib.contextmanager
def pod(world, *options, running=True, name=NAME, number=NUMBER):
    """One more pod, captured, until the end of the block."""
    try:
        made = world.pod(name, number)
        made.program(8080)
        world.capture(made)
        if running:
            start(made, *options)
        yield made
    finally:
        world.remove(name)


def start(made, *options, ports=(OUTBOUND, INBOUND)):
    recorder = made.peer("recorder.py", *options, *ports, owner=PROXY)
    made.wait_listening(recorder, *ports)
    return recorder


def ask(conn):
    """What the proxy says of this connection."""
    text = b""
    while not text.endswith(b"\n"):
        data = conn.recv(1)
        if not data:
            raise ConnectionError(0, "closed before a line had come")
        text += data
    return json.loads(text)


def again(conn):
    """Once more."""
    conn.sendall(b".")
    return ask(conn)


def met(host, port, conn=None, dialled=False):
    """How the connection looks from both ends, but for the ports that the kernel has chosen."""
    with conn or socket.socket(clients.family_of(host)) as conn:
        conn.settimeout(clients.PATIENCE)
        if not dialled:
            conn.connect((host, port))
        seen = ask(conn)
        local, peer = conn.getsockname()[:2], list(conn.getpeername()[:2])
    return {"listener": seen["listener"], "original": seen["original"], "same": seen["peer"] == list(local),
            "peer": peer, "source": local[0]}
