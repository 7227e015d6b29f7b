"""What programs of pods do: they run in a pod, and tell what they met."""

import errno
import json
import socket

PATIENCE = 20
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


def family_of(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class Conn:
    """A connection to a program that greets."""

    def __init__(self, host, port, sock=None, seconds=PATIENCE):
        self.sock = sock or socket.socket(family_of(host))
        self.sock.settimeout(seconds)
        self.sock.connect((host, port))
        self.rest = b""

    def line(self):
        """One line in JSON."""
        while b"\n" not in self.rest:
            data = self.sock.recv(1 << 16)
            if not data:
                raise ConnectionError(errno.ENODATA, "closed before a line had come")
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def echo(self, data):
        """The same must come back."""
        self.sock.sendall(data)
        back = self.rest
        self.rest = b""
        while len(back) < len(data):
            chunk = self.sock.recv(1 << 16)
            if not chunk:
                raise ConnectionError(errno.ENODATA, f"closed after {len(back)} of {len(data)} bytes")
            back += chunk
        if back != data:
            raise AssertionError("other bytes came back")

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


SOL_SIDESTEP, TRUE_PEER = 0x5353, 1  # crates/bpf/src/true_peer.h


def is_diverted(sock):
    """The proxy's own connection may happen to have the client's port: then the addresses do not tell."""
    try:
        return bool(sock.getsockopt(SOL_SIDESTEP, TRUE_PEER, 20))
    except OSError:
        return False


def visit(host, port, sock=None):
    """How a connection looks from both ends, and whether it went by a proxy."""
    with Conn(host, port, sock) as conn:
        seen = conn.line()
        conn.echo(b"x" * 1000)
        local, peer = list(conn.sock.getsockname()[:2]), list(conn.sock.getpeername()[:2])
    return {"name": seen["name"], "local": local[0], "peer": peer, "seen_local": seen["local"],
            "seen_peer": seen["peer"][0], "proxied": seen["peer"] != local or is_diverted(conn.sock)}


def outcome(host, port, sock=None):
    """In one word."""
    try:
        return "proxied" if visit(host, port, sock)["proxied"] else "direct"
    except OSError as error:
        return describe(error)


def describe(error):
    return errno.errorcode.get(error.errno, str(error)) if error.errno else type(error).__name__


def steps(host, port):
    """How far a connection comes: what each call says."""
    said = []
    with socket.socket(family_of(host)) as sock:
        sock.settimeout(PATIENCE)
        for name, call in (("connect", lambda: sock.connect((host, port))), ("recv", lambda: len(sock.recv(100)))):
            try:
                said.append((name, call()))
            except OSError as error:
                said.append((name, describe(error)))
                break
    return said
