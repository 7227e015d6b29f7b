#!/usr/bin/env python3
"""Answers questions by UDP and TCP with a line that says who has answered whom: resolver.py NAME PORT ADDRESS..."""

import asyncio
import json
import socket
import sys


def answer(name, peer, question):
    return json.dumps({"name": name, "peer": peer[0], "question": question.decode()}).encode() + b"\n"


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, name):
        self.name = name

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, peer):
        self.transport.sendto(answer(self.name, peer, data), peer)


async def serve(name, reader, writer):
    try:
        writer.write(answer(name, writer.get_extra_info("peername"), await reader.readline()))
        await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def main(name, port, hosts):
    loop = asyncio.get_running_loop()
    for host in hosts:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        await loop.create_datagram_endpoint(lambda: Datagrams(name), (host, port))
        await asyncio.start_server(lambda r, w: serve(name, r, w), host, port, family=family)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
