"""Echo server, one program in six ways of waiting. A client's half-close is answered when all is echoed."""

import argparse
import asyncio
import os
import selectors
import signal
import socket
import sys
import threading

READ_SIZE = 65_536
# With so much not yet echoed the server stops reading: back-pressure must reach the client.
HIGH_WATER = 262_144


def echo_blocking(connection):
    with connection:
        while data := connection.recv(READ_SIZE):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def serve_threads(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=echo_blocking, args=(connection,), daemon=True).start()


def serve_fork(listener):
    """A child for each connection, which the parent holds too for a moment: as PostgreSQL does."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            echo_blocking(connection)
            sys.exit(0)
        connection.close()


def serve_selector(listener, selector):
    listener.setblocking(False)
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, mask in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ, Pending())
            else:
                echo_ready(selector, key, mask)


class Pending:
    """What one connection has received and not yet sent back."""

    def __init__(self):
        self.data = bytearray()
        self.eof = False


def echo_ready(selector, key, mask):
    connection, pending = key.fileobj, key.data
    if mask & selectors.EVENT_READ:
        data = connection.recv(READ_SIZE)
        pending.data += data
        pending.eof = not data
    if pending.data:
        try:
            del pending.data[:connection.send(pending.data)]
        except BlockingIOError:
            pass  # full: EVENT_WRITE will tell
    if pending.eof and not pending.data:
        connection.shutdown(socket.SHUT_WR)
        selector.unregister(connection)
        connection.close()
        return
    wanted = selectors.EVENT_WRITE if pending.data else 0
    if not pending.eof and len(pending.data) < HIGH_WATER:
        wanted |= selectors.EVENT_READ
    selector.modify(connection, wanted, pending)


async def echo_async(reader, writer):
    while data := await reader.read(READ_SIZE):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
    writer.close()


def serve_asyncio(listener):
    async def main():
        server = await asyncio.start_server(echo_async, sock=listener)
        await server.serve_forever()
    asyncio.run(main())


SERVERS = {
    "threads": serve_threads,
    "fork": serve_fork,
    "epoll": lambda listener: serve_selector(listener, selectors.EpollSelector()),
    "poll": lambda listener: serve_selector(listener, selectors.PollSelector()),
    "select": lambda listener: serve_selector(listener, selectors.SelectSelector()),
    "asyncio": serve_asyncio,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=SERVERS, required=True)
    options = parser.parse_args()
    # An ordinary end, so that what runs at exit does run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(f"listening on {listener.getsockname()[1]}", flush=True)
    SERVERS[options.mode](listener)


if __name__ == "__main__":
    main()
