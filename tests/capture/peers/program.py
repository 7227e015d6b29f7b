#!/usr/bin/env python3
"""A program of a pod: program.py NAME PORT... At each port it greets with a line that says how the connection looks from
this end, and then says back everything that it hears, until the other end has finished."""

import asyncio
import json
import os
import resource
import socket
import sys

CHUNK = 1 << 16
TCP_SAVE_SYN, TCP_SAVED_SYN = 27, 28


def hops(sock):
    """How far the first packet might have gone, which is what its sender has set."""
    header = sock.getsockopt(socket.SOL_TCP, TCP_SAVED_SYN, 120)
    return header[8] if header[0] >> 4 == 4 else header[7]


def greeting(name, writer):
    local, peer = (writer.get_extra_info(end)[:2] for end in ("sockname", "peername"))
    told = {"name": name, "local": local, "peer": peer, "hops": hops(writer.get_extra_info("socket"))}
    return json.dumps(told).encode() + b"\n"


async def serve(name, reader, writer):
    try:
        writer.write(greeting(name, writer))
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
        # The other end may have more time than we.
        await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def main(name, ports):
    for port in ports:
        for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            server = await asyncio.start_server(lambda r, w: serve(name, r, w), host, port, family=family, backlog=4096,
                                                start_serving=False)
            server.sockets[0].setsockopt(socket.SOL_TCP, TCP_SAVE_SYN, 1)
            await server.start_serving()
    await asyncio.Event().wait()


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        asyncio.run(main(sys.argv[1], [int(port) for port in sys.argv[2:]]))
    except KeyboardInterrupt:
        os._exit(0)
