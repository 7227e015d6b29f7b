"""gRPC server and client that check each other: unary calls and streams in either and both directions.

Messages are plain bytes of many sizes. The server answers with a transformation that the client can compute.
"""

import argparse
import hashlib
import json
import random
import sys
import threading
from concurrent import futures

import grpc

SIZES = (0, 1, 100, 4096, 16_384, 65_536, 300_000)
OPTIONS = (("grpc.max_receive_message_length", 8 << 20), ("grpc.so_reuseport", 0))
SERVICE = "check.Echo"


def message(seed):
    choose = random.Random(seed)
    return choose.randbytes(choose.choice(SIZES))


def digest(parts):
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.digest()


def turned(data):
    return data[::-1]


def serve(options):
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(lambda data, _: turned(data)),
        "Up": grpc.stream_unary_rpc_method_handler(lambda parts, _: digest(parts)),
        "Down": grpc.unary_stream_rpc_method_handler(lambda seed, _: map(message, span(seed))),
        "Both": grpc.stream_stream_rpc_method_handler(lambda parts, _: map(turned, parts)),
    }
    server = grpc.server(futures.ThreadPoolExecutor(16), options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"listening on {port}", flush=True)
    sys.stdin.read()  # until the test closes it
    server.stop(5).wait()


def span(seed):
    """The seeds of the messages of one stream, from its first and their number."""
    first, count = map(int, seed.split())
    return range(first, first + count)


class Client(threading.Thread):
    """One channel, which is one connection of its own, with all kinds of calls in turn."""

    def __init__(self, number, options):
        super().__init__()
        self.number = number
        self.options = options
        self.bytes = 0
        self.error = None

    def run(self):
        try:
            settings = (*OPTIONS, ("grpc.use_local_subchannel_pool", 1))
            with grpc.insecure_channel(f"127.0.0.1:{self.options.port}", settings) as channel:
                for turn in range(self.options.rounds):
                    self.one_round(channel, self.number * 1_000_000 + turn * 1_000)
        except Exception as error:  # noqa: BLE001 - a thread's error must reach main
            self.error = f"{type(error).__name__}: {error}"

    def one_round(self, channel, first):
        seeds = range(first, first + self.options.messages)
        messages = [message(seed) for seed in seeds]
        unary = channel.unary_unary(f"/{SERVICE}/Unary")
        calls = [unary.future(data, timeout=60) for data in messages]  # all at once: streams of one connection
        self.compare("Unary", [call.result() for call in calls], list(map(turned, messages)))
        up = channel.stream_unary(f"/{SERVICE}/Up")
        self.compare("Up", up(iter(messages), timeout=60), digest(messages))
        down = channel.unary_stream(f"/{SERVICE}/Down")
        self.compare("Down", list(down(f"{first} {len(messages)}".encode(), timeout=60)), messages)
        both = channel.stream_stream(f"/{SERVICE}/Both")
        self.compare("Both", list(both(iter(messages), timeout=60)), list(map(turned, messages)))
        self.bytes += 6 * sum(map(len, messages))

    def compare(self, method, got, wanted):
        if got != wanted:
            raise ValueError(f"{method}: the answer is not what was sent ({len(got)} and {len(wanted)} parts)")


def call(options):
    clients = [Client(number, options) for number in range(options.connections)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    errors = [client.error for client in clients if client.error]
    print(json.dumps({"bytes": sum(c.bytes for c in clients), "connections": len(clients), "errors": errors}))
    sys.exit(1 if errors else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("serve", "call"))
    parser.add_argument("--port", type=int)
    parser.add_argument("--connections", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=40, help="messages in each stream")
    options = parser.parse_args()
    (serve if options.action == "serve" else call)(options)


if __name__ == "__main__":
    main()
