"""HTTP client that compares every body with the file it came from; several keep-alive connections at once.

A server may close an idle keep-alive connection while a request is on its way: as every HTTP client does, such
a request (no byte of an answer seen, connection used before) is sent again on a new connection. All else fails.
"""

import argparse
import http.client
import json
import random
import sys
import threading
import time
from pathlib import Path


class Worker(threading.Thread):
    def __init__(self, number, options, bodies):
        super().__init__()
        self.options = options
        self.bodies = bodies
        self.random = random.Random(number)
        self.connection = None
        self.used = False
        self.requests = self.retries = self.connections = self.bytes = 0
        self.error = None

    def run(self):
        try:
            deadline = time.monotonic() + self.options.seconds
            done = 0
            while done < self.options.rounds or time.monotonic() < deadline:
                self.one_round()
                done += 1
        except Exception as error:  # noqa: BLE001 - a thread's error must reach main
            self.error = f"{type(error).__name__}: {error}"
        finally:
            if self.connection is not None:
                self.connection.close()

    def one_round(self):
        names = list(self.bodies)
        self.random.shuffle(names)
        for name in names:
            self.get(name, None)
            size = len(self.bodies[name])
            if size > 1:
                first = self.random.randrange(size)
                self.get(name, (first, self.random.randrange(first, size)))

    def get(self, name, span):
        headers = {} if span is None else {"Range": f"bytes={span[0]}-{span[1]}"}
        response = self.response(name, headers)
        body = response.read()
        wanted = self.bodies[name] if span is None else self.bodies[name][span[0]:span[1] + 1]
        status = 200 if span is None else 206
        if response.status != status:
            raise ValueError(f"/{name} {headers}: status {response.status}, not {status}")
        if body != wanted:
            raise ValueError(f"/{name} {headers}: {difference(body, wanted)}")
        self.requests += 1
        self.bytes += len(body)
        self.used = not response.will_close
        if response.will_close:
            self.connection.close()
            self.connection = None

    def response(self, name, headers):
        while True:
            if self.connection is None:
                self.connect()
            try:
                self.connection.request("GET", f"/{name}", headers=headers)
                return self.connection.getresponse()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                if not self.used:
                    raise
                self.retries += 1
                self.connection.close()
                self.connection = None

    def connect(self):
        self.connection = http.client.HTTPConnection("127.0.0.1", self.options.port, timeout=20)
        self.connections += 1
        self.used = False


def difference(got, wanted):
    if len(got) != len(wanted):
        return f"{len(got)} bytes, not {len(wanted)}"
    at = next(i for i, (a, b) in enumerate(zip(got, wanted)) if a != b)
    return f"differs from byte {at} of {len(wanted)} on"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--directory", type=Path, required=True, help="the files that the server serves")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1, help="at least so many times all files")
    parser.add_argument("--seconds", type=float, default=0, help="and at least so long")
    options = parser.parse_args()
    bodies = {f.name: f.read_bytes() for f in options.directory.iterdir() if f.is_file()}
    workers = [Worker(number, options, bodies) for number in range(options.connections)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    errors = [worker.error for worker in workers if worker.error]
    total = {key: sum(getattr(w, key) for w in workers) for key in ("requests", "retries", "connections", "bytes")}
    print(json.dumps({**total, "errors": errors}))
    sys.exit(1 if errors else 0)


main()
