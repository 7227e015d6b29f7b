"""Echo client: on each connection small round trips, then a stream sent and received at once, half-close, end.

Every byte that comes back is compared. Ends with one line of JSON.
"""

import argparse
import asyncio
import json
import random
import selectors
import socket
import sys
import threading

ROUND_TRIPS = 100
STREAM_BYTES = 1_000_000
READ_SIZE = 40_000


class Plan:
    """What one connection sends: known to sender and checker alike."""

    def __init__(self, number):
        choose = random.Random(number)
        self.messages = [choose.randbytes(choose.randint(1, 3_000)) for _ in range(ROUND_TRIPS)]
        self.stream = choose.randbytes(STREAM_BYTES)
        self.pieces, at = [], 0
        while at < STREAM_BYTES:
            size = choose.choice((1, 100, 1_448, 8_192, 70_000))
            self.pieces.append(self.stream[at:at + size])
            at += size


def compare(got, wanted, what):
    if got == wanted:
        return
    at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
    raise ValueError(f"{what}: {len(got)} bytes came back for {len(wanted)}, different from byte {at} on")


def run_blocking(port, plan):
    with socket.create_connection(("127.0.0.1", port), timeout=None) as connection:
        for message in plan.messages:
            connection.sendall(message)
            compare(receive_exactly(connection, len(message)), message, "round trip")
        sender = threading.Thread(target=send_stream, args=(connection, plan))
        sender.start()
        compare(receive_to_end(connection), plan.stream, "stream")
        sender.join()


def send_stream(connection, plan):
    for piece in plan.pieces:
        connection.sendall(piece)
    connection.shutdown(socket.SHUT_WR)


def receive_exactly(connection, size):
    received = bytearray()
    while len(received) < size:
        data = connection.recv(size - len(received))
        if not data:
            raise ValueError(f"the connection ended after {len(received)} of {size} bytes")
        received += data
    return received


def receive_to_end(connection):
    received = bytearray()
    while data := connection.recv(READ_SIZE):
        received += data
    return received


async def run_async(port, plan):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for message in plan.messages:
        writer.write(message)
        compare(await reader.readexactly(len(message)), message, "round trip")

    async def send():
        for piece in plan.pieces:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()

    _, received = await asyncio.gather(send(), reader.read(-1))
    compare(received, plan.stream, "stream")
    writer.close()
    await writer.wait_closed()


class Selected:
    """One connection in the selector: the same plan as a little state machine."""

    def __init__(self, port, plan):
        self.plan = plan
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.outgoing = [*plan.messages, *plan.pieces]
        self.sent = 0          # messages or pieces given out so far
        self.unsent = b""
        self.wanted = b"".join(plan.messages) + plan.stream
        self.received = bytearray()
        self.open = True       # our direction

    def may_send_next(self):
        """A round trip is over when all that was sent has come back; the stream does not wait."""
        if self.sent >= len(self.outgoing):
            return False
        return self.sent >= ROUND_TRIPS or len(self.received) == sum(map(len, self.outgoing[:self.sent]))

    def step(self):
        """Sends and receives what goes now. Returns whether the connection has ended."""
        self.send_what_goes()
        try:
            data = self.socket.recv(READ_SIZE)
        except BlockingIOError:
            return False
        self.received += data
        if not data:
            compare(self.received, self.wanted, "stream")
            self.socket.close()
        return not data

    def send_what_goes(self):
        while True:
            if not self.unsent:
                if not self.may_send_next():
                    break
                self.unsent = self.outgoing[self.sent]
                self.sent += 1
            try:
                self.unsent = self.unsent[self.socket.send(self.unsent):]
            except BlockingIOError:
                return
        if self.open and self.sent == len(self.outgoing):
            self.open = False
            self.socket.shutdown(socket.SHUT_WR)

    def events(self):
        writes = bool(self.unsent) or self.may_send_next() or (self.open and self.sent == len(self.outgoing))
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if writes else 0)


def run_selector(port, plans, selector):
    left = set()
    for plan in plans:
        one = Selected(port, plan)
        selector.register(one.socket, one.events(), one)
        left.add(one)
    while left:
        for key, _ in selector.select():
            one = key.data
            fd = key.fd
            if one.step():
                selector.unregister(fd)
                left.discard(one)
            elif key.events != one.events():
                selector.modify(fd, one.events(), one)


def run_threads(port, plans):
    errors = []

    def guarded(plan):
        try:
            run_blocking(port, plan)
        except Exception as error:  # noqa: BLE001 - a thread's error must reach main
            errors.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=guarded, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise ValueError("; ".join(errors))


def run_asyncio(port, plans):
    async def main():
        await asyncio.gather(*(run_async(port, plan) for plan in plans))
    asyncio.run(main())


CLIENTS = {
    "threads": run_threads,
    "epoll": lambda port, plans: run_selector(port, plans, selectors.EpollSelector()),
    "poll": lambda port, plans: run_selector(port, plans, selectors.PollSelector()),
    "select": lambda port, plans: run_selector(port, plans, selectors.SelectSelector()),
    "asyncio": run_asyncio,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=CLIENTS, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, default=6)
    options = parser.parse_args()
    plans = [Plan(number) for number in range(options.connections)]
    CLIENTS[options.mode](options.port, plans)
    sent = sum(sum(map(len, plan.messages)) + STREAM_BYTES for plan in plans)
    print(json.dumps({"connections": len(plans), "bytes": sent}))


if __name__ == "__main__":
    sys.exit(main())
