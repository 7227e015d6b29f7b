"""Envoy's hot restart: a new process takes the listeners over from the old one, which drains and ends."""

import contextlib
import json
import os
import re

from apps.support import envoy
from testkit import net, paths

DRAIN_SECONDS = 1
PARENT_SECONDS = 3
STARTED = re.compile("starting main dispatch loop")


class Envoys:
    """Generations of one Envoy, each started while the one before it serves."""

    def __init__(self, case, service_port):
        self.case = case
        self.http_port, self.tcp_port = net.free_port(), net.free_port()
        self.config = case.tmp / "envoy.json"
        self.config.write_text(json.dumps(envoy.configuration(self.http_port, self.tcp_port, service_port), indent=1))
        self.base = case.tmp / "envoy-base-id"
        self.epoch = 0
        self.process = self._start("--use-dynamic-base-id", "--base-id-path", self.base)
        self.case.at_end(self._remove_memory)

    def _start(self, *options):
        process = self.case.start("envoy", [
            paths.envoy(), "-c", self.config, "--concurrency", "2", "--log-level", "info", "--socket-path",
            f"@sidestep-test-{self.case.tmp.name}", "--drain-time-s", DRAIN_SECONDS, "--parent-shutdown-time-s",
            PARENT_SECONDS, *options])
        process.wait_output(STARTED, 30)
        return process

    def base_id(self):
        return self.base.read_text().strip()

    def restart(self):
        """Starts the next generation and waits until the one before it has drained and ended."""
        old = self.process
        self.epoch += 1
        self.process = self._start("--base-id", self.base_id(), "--restart-epoch", self.epoch)
        old.wait(PARENT_SECONDS + 20)

    def _remove_memory(self):
        """Envoy leaves its shared memory behind for its next generation."""
        for epoch in range(self.epoch + 1):
            with contextlib.suppress(OSError):
                os.unlink(f"/dev/shm/envoy_shared_memory_{int(self.base_id()) * 10 + epoch}")
