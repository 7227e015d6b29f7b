#!/usr/bin/env python3
"""A proxy that goes nowhere: recorder.py PORT... At each port, of both families, it says how the connection looks from
its end and what SO_ORIGINAL_DST answers, and says so again for every line that it hears. With --mptcp its listeners are
MPTCP's; with --fastopen they take data in the SYN; with --deaf it accepts nothing and has no room for what waits; with
--slow it closes its end a moment after the other."""

import argparse
import asyncio
import json
import socket
import struct

SO_ORIGINAL_DST = 80
SOL_IPV6 = 41
TCP_FASTOPEN = 23
IPPROTO_MPTCP = 262
# In seconds.
MOMENT = 0.1


def original(sock, family):
    """None: there is no answer."""
    level, size = (socket.SOL_IP, 16) if family == socket.AF_INET else (SOL_IPV6, 28)
    try:
        answer = sock.getsockopt(level, SO_ORIGINAL_DST, size)
    except OSError:
        return None
    port = struct.unpack_from("!H", answer, 2)[0]
    host = answer[4:8] if family == socket.AF_INET else answer[8:24]
    return [socket.inet_ntop(family, host), port]


def record(port, sock):
    family = sock.family
    local, peer = sock.getsockname()[:2], sock.getpeername()[:2]
    return json.dumps({"listener": port, "local": local, "peer": peer, "original": original(sock, family)}) + "\n"


async def serve(port, conn, slow):
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(conn, record(port, conn).encode())
        while await loop.sock_recv(conn, 4096):
            await loop.sock_sendall(conn, record(port, conn).encode())
        await asyncio.sleep(MOMENT if slow else 0)
    except OSError:
        pass
    finally:
        conn.close()


def listen(family, host, port, options):
    sock = socket.socket(family, socket.SOCK_STREAM, IPPROTO_MPTCP if options.mptcp else 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setblocking(False)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if options.fastopen:
        sock.setsockopt(socket.SOL_TCP, TCP_FASTOPEN, 16)
    sock.bind((host, port))
    sock.listen(0 if options.deaf else 1024)
    return sock


async def accept(port, listener, slow):
    loop, tasks = asyncio.get_running_loop(), set()
    while True:
        conn, _ = await loop.sock_accept(listener)
        conn.setblocking(False)
        task = loop.create_task(serve(port, conn, slow))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def main(options):
    hosts = ((socket.AF_INET, options.host4), (socket.AF_INET6, options.host6))
    listeners = [(port, listen(family, host, port, options)) for port in options.port for family, host in hosts]
    if options.deaf:
        await asyncio.Event().wait()
    await asyncio.gather(*(accept(port, listener, options.slow) for port, listener in listeners))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--mptcp", action="store_true")
    parser.add_argument("--fastopen", action="store_true")
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--host4", default="0.0.0.0")
    parser.add_argument("--host6", default="::")
    parser.add_argument("port", type=int, nargs="+")
    asyncio.run(main(parser.parse_args()))
