"""redis client of a few lines: fills keys with known values, verifies them, publishes and receives messages."""

import argparse
import json
import random
import socket
import sys
import threading


class Redis:
    """One connection, RESP protocol, pipelining by `send` and `reply`."""

    def __init__(self, options):
        self.socket = socket.create_connection((options.host, options.port), timeout=20)
        self.stream = self.socket.makefile("rb")

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    def reply(self):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise ValueError(f"connection ended in a reply: {line!r}")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return self.bulk(int(rest))
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        raise ValueError(f"redis answers {line!r}")

    def bulk(self, length):
        if length < 0:
            return None
        body = self.stream.read(length + 2)
        if len(body) != length + 2 or not body.endswith(b"\r\n"):
            raise ValueError(f"bulk reply of {len(body)} bytes, not {length + 2}")
        return body[:-2]

    def call(self, *words):
        self.send(*words)
        return self.reply()


def value(number):
    """What key `number` must hold: from a few bytes to some ten thousand."""
    choose = random.Random(number)
    return choose.randbytes(choose.choice((3, 100, 4_000, 40_000)))


def fill(options):
    redis = Redis(options)
    for number in range(options.count):
        redis.send("SET", f"key:{number}", value(number))
        if redis.reply() != b"OK":
            raise ValueError(f"SET of key {number} failed")
    return options.count


def verify(options):
    """Reads in batches of 16, so that replies fill buffers."""
    redis = Redis(options)
    for start in range(0, options.count, 16):
        numbers = range(start, min(start + 16, options.count))
        for number in numbers:
            redis.send("GET", f"key:{number}")
        for number in numbers:
            if redis.reply() != value(number):
                raise ValueError(f"key {number} has a wrong value")
    return options.count


def pubsub(options):
    """Several subscribers in threads; every one must get every message, whole and in order."""
    errors, ready = [], threading.Barrier(options.subscribers + 1, timeout=20)
    threads = [threading.Thread(target=subscriber, args=(options, ready, errors)) for _ in range(options.subscribers)]
    for thread in threads:
        thread.start()
    ready.wait()
    publisher = Redis(options)
    for number in range(options.count):
        receivers = publisher.call("PUBLISH", "news", value(number))
        if receivers != options.subscribers:
            raise ValueError(f"message {number} went to {receivers} subscribers, not {options.subscribers}")
    for thread in threads:
        thread.join()
    if errors:
        raise ValueError("; ".join(errors))
    return options.count * options.subscribers


def subscriber(options, ready, errors):
    try:
        redis = Redis(options)
        redis.call("SUBSCRIBE", "news")
        ready.wait()
        for number in range(options.count):
            if redis.reply() != [b"message", b"news", value(number)]:
                raise ValueError(f"message {number} is wrong")
    except Exception as error:  # noqa: BLE001 - a thread's error must reach main
        errors.append(f"{type(error).__name__}: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("fill", "verify", "pubsub"))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, default=500, help="keys or messages")
    parser.add_argument("--subscribers", type=int, default=4)
    options = parser.parse_args()
    done = {"fill": fill, "verify": verify, "pubsub": pubsub}[options.action](options)
    print(json.dumps({"done": done}))


if __name__ == "__main__":
    sys.exit(main())
