"""Every byte arrives, in both directions, whoever finishes first, and however many connections there are."""

import hashlib
import random
import resource
import socket
import threading

from capture import clients
from capture.worlds import PORT
from testkit.failure import check

MEGABYTE = 1 << 20
BLOB = 2 * MEGABYTE
OWN_PORT = 9001


def blob(seed, size=BLOB):
    return random.Random(seed).randbytes(size)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def read_all(sock):
    parts = []
    while data := sock.recv(1 << 16):
        parts.append(data)
    return b"".join(parts)


# --- half-close ---------------------------------------------------------------------------------------------------

def listener(host):
    sock = socket.create_server((host, OWN_PORT), family=clients.family_of(host))
    sock.settimeout(clients.PATIENCE)
    return sock


def serve(host, first):
    """One connection. Who is `first` sends everything and finishes; then the other does."""
    with listener(host) as sock:
        conn, _ = sock.accept()
    conn.settimeout(clients.PATIENCE)
    with conn:
        return talk(conn, "server", first)


def talk(conn, who, first):
    if who == first:
        conn.sendall(blob(who))
        conn.shutdown(socket.SHUT_WR)
        return digest(read_all(conn))
    heard = digest(read_all(conn))
    conn.sendall(blob(who))
    conn.shutdown(socket.SHUT_WR)
    return heard


def dial(host, first):
    with socket.create_connection((host, OWN_PORT), clients.PATIENCE) as conn:
        return talk(conn, "client", first)


def half_close(asker, answerer, first, family):
    host = answerer.ip[family]
    server = answerer.start(serve, host, first)
    answerer.wait_listening_task(server, OWN_PORT, family)
    heard = asker.run(dial, host, first), server.result()
    check(heard == (digest(blob("server")), digest(blob("client"))), f"IPv{family}, {first} first: other bytes arrived")


def test_half_close(testbed):
    """Outbound and inbound; the program that dials finishes first, or the one that answers."""
    world = testbed.ours
    for family in (4, 6):
        for first in ("client", "server"):
            half_close(world.client, world.outside, first, family)
            half_close(world.outside, world.server, first, family)
            half_close(world.client, world.server, first, family)


# --- many ---------------------------------------------------------------------------------------------------------

def one_after_another(host, count):
    """How many went by the proxy."""
    dice = random.Random(count)
    proxied = 0
    for _ in range(count):
        with clients.Conn(host, PORT) as conn:
            proxied += clients.is_proxied(conn.line())
            conn.echo(dice.randbytes(dice.randrange(1, 3000)))
    return proxied


def test_one_after_another(testbed):
    count = 5000 if testbed.slow else 750
    world = testbed.ours
    tasks = [world.client.start(one_after_another, world.outside.ip[family], count) for family in (4, 6)]
    for task in tasks:
        found = task.result(seconds=300)
        check(found == count, f"{found} of {count} connections went by Envoy")


def at_once(host, count):
    """All are begun before any is used, and all are open together."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    socks = [socket.socket(clients.family_of(host)) for _ in range(count)]
    for sock in socks:
        sock.setblocking(False)
        sock.connect_ex((host, PORT))
    conns = [Begun(sock) for sock in socks]
    proxied = sum(clients.is_proxied(conn.line()) for conn in conns)
    for number, conn in enumerate(conns):
        conn.sock.sendall(blob(number, 2000))
    for number, conn in enumerate(conns):
        check(conn.exactly(2000) == blob(number, 2000), f"connection {number} got other bytes")
        conn.close()
    return proxied


class Begun(clients.Conn):
    """A connection that somebody has begun."""

    def __init__(self, sock):
        self.sock = sock
        self.rest = b""
        sock.settimeout(clients.PATIENCE)

    def exactly(self, size):
        while len(self.rest) < size:
            data = self.sock.recv(1 << 16)
            check(data, f"closed after {len(self.rest)} bytes")
            self.rest += data
        data, self.rest = self.rest[:size], self.rest[size:]
        return data


def test_all_at_once(testbed):
    count = 1000 if testbed.slow else 200
    world = testbed.ours
    for family in (4, 6):
        found = world.client.run(at_once, world.outside.ip[family], count)
        check(found == count, f"IPv{family}: {found} of {count} connections went by Envoy")


def large(host, size):
    """Sends and hears at the same time."""
    with clients.Conn(host, PORT) as conn:
        conn.line()
        data = blob("large", MEGABYTE)
        writer = threading.Thread(target=lambda: [conn.sock.sendall(data) for _ in range(size // MEGABYTE)])
        writer.start()
        left, there = hashlib.sha256(), 0
        while there < size:
            chunk = conn.sock.recv(1 << 18)
            check(chunk, f"closed after {there} bytes")
            left.update(chunk)
            there += len(chunk)
        writer.join()
    right = hashlib.sha256()
    for _ in range(size // MEGABYTE):
        right.update(data)
    return left.hexdigest() == right.hexdigest()


def test_large_bodies(testbed):
    size = (1024 if testbed.slow else 64) * MEGABYTE
    world = testbed.ours
    check(world.client.run(large, world.outside.ip[4], size, seconds=300), "outbound: other bytes came back")
    check(world.outside.run(large, world.server.ip[6], size, seconds=300), "inbound: other bytes came back")
