#!/usr/bin/env python3
"""escaper.py ATTACK WORDS: how the root of a pod tries to reach a host that it must not reach. Prints one line of JSON.

  ways NAME HOST PORT OWN OTHER [WAY...]  sends HOST the name NAME-WAY, by each way or by these: what came of each. OWN is the pod's
                                          address, OTHER that of another pod
  flood NAME HOST PORT SECONDS            sends datagrams, as many as it can: how many the kernel has taken
  listen PORT...                          listens as root, as a proxy would, and answers `stranger`; stays
"""

import socket
import struct
import threading
import time

import attempts
from attempts import CLONE_NEWNET, CLONE_NEWUSER, in_namespaces

PATIENCE_SECONDS = 2
# Of linux/in.h: bind(2) also takes an address that the pod does not have.
IP_FREEBIND = 15
SOURCE_PORT, TIME_TO_LIVE = 9998, 64


class Target:
    def __init__(self, name, host, port, own, other):
        self.name, self.address, self.own, self.other = name, (host, int(port)), own, other

    def word(self, way):
        return f"{self.name}-{way}\n".encode()


def tcp(target):
    with socket.create_connection(target.address, timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(target.word("tcp"))


def udp(target):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(target.word("udp"), target.address)


def connected_udp(target):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(target.address)
        sender.send(target.word("connected"))


def raw(target):
    send_packet(target, target.own, "raw")


def spoofed(target):
    """The header names another pod as the sender."""
    send_packet(target, target.other, "spoofed")


def bound(target):
    """A socket with an address of another pod."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        sender.bind((target.other, 0))
        sender.sendto(target.word("bound"), target.address)


def namespace(target):
    """A socket that was made before the process left for a network namespace of its own, and one that it makes there."""
    with socket.socket() as before:
        before.settimeout(PATIENCE_SECONDS)

        def attempt():
            before.connect(target.address)
            before.sendall(target.word("namespace"))
        in_namespaces(attempt, CLONE_NEWUSER | CLONE_NEWNET)


def namespace_udp(target):
    in_namespaces(lambda: udp(target), CLONE_NEWUSER | CLONE_NEWNET)


def send_packet(target, source, way):
    """The kernel adds the length, the number and the checksum of the IP header."""
    word = target.word(way)
    addresses = socket.inet_aton(source) + socket.inet_aton(target.address[0])
    header = struct.pack("!BBHHHBBH", 0x45, 0, 0, 0, 0, TIME_TO_LIVE, socket.IPPROTO_UDP, 0) + addresses
    datagram = struct.pack("!HHHH", SOURCE_PORT, target.address[1], 8 + len(word), 0) + word
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sender:
        sender.sendto(header + datagram, (target.address[0], 0))


WAYS = {way.__name__: way for way in (tcp, udp, connected_udp, raw, spoofed, bound, namespace, namespace_udp)}


def ways(name, host, port, own, other, *chosen):
    target = Target(name, host, port, own, other)
    return {way: outcome(WAYS[way], target) for way in chosen or WAYS}


def outcome(way, target):
    try:
        way(target)
        return "done"
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def flood(name, host, port, seconds):
    target, taken = Target(name, host, port, None, None), 0
    deadline = time.monotonic() + float(seconds)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        while time.monotonic() < deadline:
            try:
                taken += sender.sendto(target.word("flood"), target.address) > 0
            except OSError:
                continue
    return {"taken": taken}


def listen(*ports):
    listeners = [socket.create_server(("0.0.0.0", int(port)), backlog=64) for port in ports]
    for listener in listeners:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
    return {"listeners": len(listeners)}, listeners


def answer(listener):
    while True:
        client, _ = listener.accept()
        with client:
            client.sendall(b"stranger\n")


if __name__ == "__main__":
    attempts.run({"ways": ways, "flood": flood, "listen": listen})
