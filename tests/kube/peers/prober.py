#!/usr/bin/env python3
"""Connects to Services as a program in a pod would, and reports who answers. Reads and writes one JSON object a line.

  {"probes": [{"how": "tcp", "host": "10.96.0.7", "port": 80, "times": 50}, ...], "patience": 0.7}

`how`: tcp, udp (connected), udp-sendto (not connected); with `-mapped`, from an IPv6 socket to ::ffff:HOST.
The answer has for each probe how often each outcome was seen: a backend's name, or what went wrong. With
`"sources": true` the name is followed by the address from which the backend saw the call come.
`http` asks for /healthz instead: the outcome is the status and the number of endpoints that the answer names.

  {"await": {"how": "tcp", "host": "10.96.0.7", "port": 80}, "wanted": "10.244.1.10:8080", "seconds": 60}

The answer is the time (CLOCK_MONOTONIC) at which that backend answered first, or null.
"""

import errno
import http.client
import json
import socket
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor

THREADS = 12
# After this many errors in a row the error is the result.
ENOUGH_ERRORS = 3
AWAIT_PATIENCE_SECONDS = 0.05
AWAIT_PAUSE_SECONDS = 0.001
ABORT = struct.pack("ii", 1, 0)
REFUSED = (errno.ECONNREFUSED,)
UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH)


class Strange(Exception):
    """An answer came that no backend gives."""


def destination(probe):
    """Family and address; IPv4 as a mapped IPv6 address if requested."""
    host, port = probe["host"], probe["port"]
    if probe["how"].endswith("-mapped"):
        return socket.AF_INET6, (f"::ffff:{host}", port)
    return (socket.AF_INET6 if ":" in host else socket.AF_INET), (host, port)


def same(a, b):
    """Addresses without flow label and scope."""
    return a[:2] == b[:2]


def ask_tcp(probe, patience):
    family, to = destination(probe)
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(patience)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        client.connect(to)
        if not same(client.getpeername(), to):
            raise Strange(f"getpeername says {client.getpeername()[:2]}")
        return named(probe, client.recv(200))


def named(probe, answer):
    """A backend's name, and the source that it saw if that is asked for."""
    return " ".join(answer.decode().split()[:2 if probe.get("sources") else 1])


def ask_http(probe, patience):
    place = f"[{probe['host']}]" if ":" in probe["host"] else probe["host"]
    connection = http.client.HTTPConnection(f"{place}:{probe['port']}", timeout=patience)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return f"health: {answer.status} {json.loads(answer.read())['localEndpoints']}"
    except (http.client.HTTPException, ValueError, KeyError) as error:
        raise Strange(f"no answer of a health check: {error!r}") from error
    finally:
        connection.close()


def ask_udp(probe, patience):
    family, to = destination(probe)
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(patience)
        if "sendto" in probe["how"]:
            client.sendto(b"who", to)
            answer, source = client.recvfrom(200)
        else:
            client.connect(to)
            source = client.getpeername()
            client.send(b"who")
            answer = client.recv(200)
        if not same(source, to):
            raise Strange(f"the answer comes from {source[:2]}")
        return named(probe, answer)


ASKS = {"tcp": ask_tcp, "udp": ask_udp, "http": ask_http}


def outcome(probe, patience):
    """The backend that answered, or the error."""
    ask = next(ask for how, ask in ASKS.items() if probe["how"].startswith(how))
    try:
        return ask(probe, patience) or "closed"
    except TimeoutError:
        return "timeout"
    except Strange as strange:
        return f"strange: {strange}"
    except OSError as error:
        if error.errno in REFUSED:
            return "refused"
        if error.errno in UNREACHABLE:
            return "unreachable"
        return errno.errorcode.get(error.errno, str(error))


def run(probe, patience):
    """How often each outcome was seen. A missing answer takes a whole timeout, so it is tried only once."""
    seen, errors = {}, 0
    for _ in range(probe["times"]):
        found = outcome(probe, patience)
        seen[found] = seen.get(found, 0) + 1
        errors = 0 if ":" in found and not found.startswith("strange") else errors + 1
        if errors >= ENOUGH_ERRORS or found == "timeout":
            break
    return seen


def await_outcome(request):
    """Tries repeatedly, with pauses that leave the processor to other programs."""
    deadline = time.monotonic() + request["seconds"]
    while time.monotonic() < deadline:
        if outcome(request["await"], AWAIT_PATIENCE_SECONDS) == request["wanted"]:
            return time.monotonic()
        time.sleep(AWAIT_PAUSE_SECONDS)
    return None


def main():
    with ThreadPoolExecutor(THREADS) as threads:
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            if "await" in request:
                answer = await_outcome(request)
            else:
                answer = list(threads.map(lambda probe: run(probe, request["patience"]), request["probes"]))
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
