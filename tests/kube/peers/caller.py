#!/usr/bin/env python3
"""Calls, as a program in a pod would. Reads one JSON object a line, and writes one for each; the first one is null.

  {"kind": "http", "host": "10.96.0.7", "port": 80, "path": "/", "called": "web", "mark": "...", "times": 20}

`kind`: http and tcp (one connection, kept for all `times`), anew (HTTP, a connection each), together (raw TCP, all
connections at once), bulk (`times` bytes there and back), udp (a socket each). The mark is sent and must come back.
dns, dns-sendto (a socket that is not connected) and dns-tcp ask for the address of `called`, which is the outcome.
The answer: what came of each time, and who answered, with what they say of themselves and of the caller.
It needs no other file, since it runs as a user who can read little.
"""

import errno
import hashlib
import http.client
import json
import os
import random
import socket
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

PIECE = 1 << 16


class Strange(Exception):
    """An answer came, but not to this request."""


def http_kept(call):
    yield from requests(call, call["times"])


def http_anew(call):
    for _ in range(call["times"]):
        yield from requests(call, 1)


def requests(call, times):
    connection = http.client.HTTPConnection(call["host"], call["port"], timeout=call["patience"])
    connection.connect()
    source = connection.sock.getsockname()
    try:
        for _ in range(times):
            # In the head, too: the body is a separate segment, and the proxy may close before it is sent.
            headers = {"Host": call["called"], "X-Mark": call["mark"]}
            connection.request("POST", call["path"], call["mark"], headers)
            response = connection.getresponse()
            said = response.read()
            if response.headers.get("Content-Type") == "application/json" and response.status == 200:
                yield str(response.status), heard(call, said)
            else:
                yield str(response.status), None
            if connection.sock is not None and connection.sock.getsockname() != source:
                raise Strange("the connection was not kept")
    finally:
        connection.close()


def heard(call, said):
    answer = json.loads(said)
    if answer.pop("heard") != call["mark"]:
        raise Strange(f"somebody else's answer: {said}")
    return answer


def connected(call):
    connection = socket.create_connection((call["host"], call["port"]), timeout=call["patience"])
    if connection.getpeername() != (call["host"], call["port"]):
        raise Strange(f"getpeername says {connection.getpeername()}")
    return connection


def tcp(call):
    """Lines and their answers; then this side shuts down, which is answered too."""
    with connected(call) as connection, connection.makefile("rb") as answers:
        for number in range(call["times"] + 1):
            if number < call["times"]:
                connection.sendall(call["mark"].encode() + b"\n")
            else:
                connection.shutdown(socket.SHUT_WR)
            said = answers.readline()
            if not said:
                raise ConnectionResetError
            yield "answered", heard(call, said)
        if answers.read():
            raise Strange("more than was to come")


def together(call):
    """All sockets are connected before the first is used."""
    everybody = threading.Barrier(call["times"])

    def one(number):
        try:
            with connected(call) as connection, connection.makefile("rb") as answers:
                everybody.wait(call["patience"])
                own = {**call, "mark": f"{call['mark']} {number}"}
                connection.sendall(own["mark"].encode() + b"\n")
                said = answers.readline()
                return ("answered", heard(own, said)) if said else ("ended", None)
        except OSError as error:
            return outcome(error), None

    with ThreadPoolExecutor(call["times"]) as threads:
        yield from threads.map(one, range(call["times"]))


def bulk(call):
    data = (call["mark"].encode() + os.urandom(PIECE)) * (call["times"] // PIECE)
    with connected(call) as connection:
        writer = threading.Thread(target=send, args=(connection, b"echo\n" + data))
        writer.start()
        back = hashlib.sha256()
        while piece := connection.recv(PIECE):
            back.update(piece)
        writer.join()
        if back.digest() != hashlib.sha256(data).digest():
            raise Strange("other bytes came back than were sent")
        yield "answered", None


def send(connection, data):
    try:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        # The reader sees the error as well.
        pass


def udp(call):
    for _ in range(call["times"]):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(call["patience"])
            client.connect((call["host"], call["port"]))
            client.send(call["mark"].encode())
            yield "answered", heard(call, client.recv(PIECE))


def dns(call):
    for _ in range(call["times"]):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(call["patience"])
            client.connect((call["host"], call["port"]))
            client.send(question(call["called"]))
            yield address_in(client.recv(PIECE)), None


def dns_sendto(call):
    server = call["host"], call["port"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(call["patience"])
        for _ in range(call["times"]):
            client.sendto(question(call["called"]), server)
            said, sender = client.recvfrom(PIECE)
            if sender != server:
                raise Strange(f"{sender} answers for {server}")
            yield address_in(said), None


def dns_tcp(call):
    for _ in range(call["times"]):
        with connected(call) as connection, connection.makefile("rb") as answers:
            asked = question(call["called"])
            connection.sendall(struct.pack("!H", len(asked)) + asked)
            length = answers.read(2)
            if len(length) < 2:
                raise ConnectionResetError
            yield address_in(answers.read(*struct.unpack("!H", length))), None


def question(name):
    """A recursive query for an IPv4 address."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!6H", random.randrange(1 << 16), 0x0100, 1, 0, 0, 0) + labels + struct.pack("!B2H", 0, 1, 1)


def address_in(said):
    """The address in the last record, which ends with it."""
    flags, _, answers = struct.unpack("!2x3H", said[:8])
    return socket.inet_ntoa(said[-4:]) if answers else f"code {flags & 0xF}"


def outcome(error):
    """Whether a connection without an answer ends by a reset or not is a matter of timing."""
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, (ConnectionError, http.client.HTTPException)):
        return "ended"
    if isinstance(error, OSError) and error.errno in UNREACHABLE:
        return "unreachable"
    return f"{type(error).__name__}: {error}"


UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH)
KINDS = {"http": http_kept, "anew": http_anew, "tcp": tcp, "together": together, "bulk": bulk, "udp": udp,
         "dns": dns, "dns-sendto": dns_sendto, "dns-tcp": dns_tcp}


def make(call):
    outcomes, answers = [], []
    try:
        for came, answer in KINDS[call["kind"]](call):
            outcomes.append(came)
            if answer is not None and answer not in answers:
                answers.append(answer)
    except (OSError, http.client.HTTPException, Strange, ValueError, threading.BrokenBarrierError) as error:
        outcomes.append(outcome(error))
    return {"outcomes": outcomes, "answers": answers}


def main():
    print("null", flush=True)
    for line in sys.stdin:
        print(json.dumps(make(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
