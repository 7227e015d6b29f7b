"""memcached client: several connections set and get values of many sizes and compare every byte."""

import argparse
import json
import random
import socket
import sys
import threading

SIZES = (1, 700, 1449, 4096, 65_536, 300_001)


def talk(port, number, rounds, errors):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            stream = connection.makefile("rb")
            for turn in range(rounds):
                for size in SIZES:
                    value = random.Random(f"{number} {turn} {size}").randbytes(size)
                    one(connection, stream, f"key-{number}-{size}", value)
    except Exception as error:  # noqa: BLE001 - a thread's error must reach main
        errors.append(f"{type(error).__name__}: {error}")


def one(connection, stream, key, value):
    connection.sendall(f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n")
    expect(stream.readline(), b"STORED\r\n")
    connection.sendall(f"get {key}\r\n".encode())
    expect(stream.readline(), f"VALUE {key} 0 {len(value)}\r\n".encode())
    if stream.read(len(value)) != value:
        raise ValueError(f"{key} came back changed")
    expect(stream.read(7), b"\r\nEND\r\n")


def expect(got, wanted):
    if got != wanted:
        raise ValueError(f"memcached answers {got!r}, not {wanted!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    errors = []
    threads = [threading.Thread(target=talk, args=(options.port, number, options.rounds, errors))
               for number in range(options.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"values": options.connections * options.rounds * len(SIZES), "errors": errors}))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
