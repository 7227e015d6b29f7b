"""Holds connections that sit still. A line on standard input: one request on each of them, then a line of JSON."""

import json
import socket
import sys

from short import TALK, answer

ROUNDS_AT_START = 12


def main():
    held = []
    for word in sys.argv[1:]:
        protocol, port, count = word.split(":")
        for _ in range(int(count)):
            held.append((protocol, socket.create_connection(("127.0.0.1", int(port)), timeout=20)))
    ask(held, ROUNDS_AT_START)
    for _ in sys.stdin:
        ask(held, 1)


def ask(held, rounds):
    for _ in range(rounds):
        for protocol, connection in held:
            question, ending, _ = TALK[protocol]
            connection.sendall(question)
            answer(connection, ending)
    print(json.dumps({"asked": len(held)}), flush=True)


if __name__ == "__main__":
    main()
