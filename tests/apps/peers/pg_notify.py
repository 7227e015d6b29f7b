"""Notifications of PostgreSQL by psycopg2: some connections listen, another one sends; every listener must get all."""

import argparse
import json
import select
import sys
import threading
import time

import psycopg2

SECONDS = 30


class Listener(threading.Thread):
    def __init__(self, address, count):
        super().__init__()
        self.connection = connect(address)
        self.connection.cursor().execute("LISTEN news")
        self.count = count
        self.got = []

    def run(self):
        deadline = time.monotonic() + SECONDS
        while len(self.got) < self.count and time.monotonic() < deadline:
            select.select([self.connection], [], [], 1)
            self.connection.poll()
            while self.connection.notifies:
                self.got.append(self.connection.notifies.pop(0).payload)
        self.connection.close()


def connect(address):
    connection = psycopg2.connect(address)
    connection.autocommit = True
    return connection


def payload(number):
    return f"note {number} " + "abcdefg"[number % 7] * (number * 13 % 3000)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--listeners", type=int, required=True)
    options = parser.parse_args()
    sent = [payload(number) for number in range(options.count)]
    listeners = [Listener(options.address, options.count) for _ in range(options.listeners)]
    for listener in listeners:
        listener.start()
    cursor = connect(options.address).cursor()
    for note in sent:
        cursor.execute("SELECT pg_notify('news', %s)", [note])
    for listener in listeners:
        listener.join()
    right = sum(listener.got == sent for listener in listeners)
    print(json.dumps({"right": right, "received": [len(listener.got) for listener in listeners]}))
    return 0 if right == len(listeners) else 1


if __name__ == "__main__":
    sys.exit(main())
