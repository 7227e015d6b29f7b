#!/usr/bin/env python3
"""requester.py HOST PORT PATH SHA256 CONNECTIONS REQUESTS|- STOP: gets PATH again and again on connections that stay, and
compares each answer.

With `-`: until the file STOP is there. Prints `started` once every connection has had its first answer, and at the end one line of
JSON: requests that were answered rightly, bytes of their bodies, the longest time for one, and failures. A connection that fails is
not made again.
"""

import hashlib
import http.client
import json
import os
import sys
import threading
import time


class Requester:
    def __init__(self, host, port, path, digest, connections, requests, stop):
        self.host, self.port, self.path, self.digest, self.stop = host, int(port), path, digest, stop
        self.connections = int(connections)
        self.most = None if requests == "-" else int(requests) // self.connections
        self.lock = threading.Lock()
        self.started = threading.Barrier(self.connections, action=lambda: print("started", flush=True))
        self.seen = {"requests": 0, "bytes": 0, "slowest": 0.0, "failures": []}

    def run(self):
        threads = [threading.Thread(target=self.use_connection) for _ in range(self.connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps(self.seen), flush=True)

    def use_connection(self):
        try:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
            connection.auto_open = 0
            connection.connect()
            self.ask(connection)
            self.started.wait(60)
            asked = 1
            while not self.is_over(asked):
                self.ask(connection)
                asked += 1
        except (OSError, ValueError, http.client.HTTPException, threading.BrokenBarrierError) as error:
            self.started.abort()
            with self.lock:
                self.seen["failures"].append(f"{type(error).__name__}: {error}")

    def is_over(self, asked):
        return os.path.exists(self.stop) if self.most is None else asked >= self.most

    def ask(self, connection):
        started = time.monotonic()
        connection.request("GET", self.path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != http.client.OK or hashlib.sha256(body).hexdigest() != self.digest:
            raise ValueError(f"status {answer.status}, {len(body)} bytes: {body[:100]!r}")
        with self.lock:
            self.seen["requests"] += 1
            self.seen["bytes"] += len(body)
            self.seen["slowest"] = max(self.seen["slowest"], time.monotonic() - started)


if __name__ == "__main__":
    Requester(*sys.argv[1:8]).run()
