"""A running Envoy, and what it says of itself over its admin socket."""

import http.client
import json
import socket

READY = "LIVE"
LIMIT = 10


class Sidecar:
    def __init__(self, lab, popen, admin):
        self._lab, self._popen, self._admin = lab, popen, admin
        self.pid = popen.pid

    def wait_ready(self):
        self._lab.wait_ready(self._popen, lambda: self._ask("/ready").strip() == READY)

    def stats(self):
        """name -> value of all counters and gauges that were used."""
        entries = json.loads(self._ask("/stats?format=json&usedonly"))["stats"]
        return {each["name"]: each["value"] for each in entries if "value" in each}

    def _ask(self, path):
        link = Admin(self._admin)
        try:
            link.request("GET", path)
            return link.getresponse().read().decode()
        finally:
            link.close()


class Admin(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=LIMIT)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT)
        self.sock.connect(self._path)
