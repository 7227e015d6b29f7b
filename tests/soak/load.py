"""One burst of mixed load; what it runs and in which order is the same in every pass."""

import json
import os
import signal
import sys
from pathlib import Path

from apps.support import http, wrk
from testkit import paths, wait
from testkit.failure import check

PEERS = Path(__file__).resolve().parent / "peers"
SHORT_COUNT = 20_000  # never reached: the time ends it
WRK_CONNECTIONS = 16
BENCHMARK_REQUESTS = 5000
KILL_EVERY, RELOAD_EVERY, DETACH_EVERY = 2, 3, 4


class Load:
    """Bursts, and how many connections each service has had."""

    def __init__(self, case, world, seconds):
        self.case, self.world, self.seconds = case, world, seconds
        self.counts = dict.fromkeys(("nginx", "reloaded", "envoy", "redis", "memcached"), 0)
        self.number = self.killed = self.reloads = self.detached = 0

    def burst(self):
        """Starts everything, lets things go wrong in the middle, and checks what came of it."""
        self.number += 1
        short, load = self._start_short(), self._start_wrk()
        bodies = self.case.start("bodies", http.command(self.case, self._bodies_port(), self.world.nginx.site,
                                                        "--connections", 2, "--seconds", self.seconds / 4))
        if self.number % KILL_EVERY == 0:
            self._kill_a_client()
        if self.number % RELOAD_EVERY == 0:
            self.world.reloaded.reload()
            self.reloads += 1
        if self.number % DETACH_EVERY == 0 and self.case.layer is not None:
            self._detach_and_attach()
        self._benchmark()
        self._check_memcached()
        self._count(short.wait(60), short)
        wrk.check_clean(wrk.result(load))
        bodies.wait(60)
        self._forget()

    def total(self):
        """Every connection has two ends, but the broker sees one connection."""
        return sum(self.counts.values())

    def connections(self, role):
        return self.total() if role == "sidestepd" else self.counts.get(role, 0)

    # --- what runs ----------------------------------------------------------------------------

    def _start_short(self):
        w = self.world
        targets = (f"nginx=http:{w.nginx.port}", f"reloaded=http-once:{w.reloaded.port}", f"redis=redis:{w.redis_port}",
                   f"memcached=memcached:{w.memcached_port}", f"envoy=http:{w.http_port}", f"envoy=http:{w.tcp_port}")
        return self.case.start("short", [sys.executable, PEERS / "short.py", "--count", SHORT_COUNT, "--seconds",
                                         self.seconds, *targets])

    def _start_wrk(self):
        ports = (self.world.nginx.port, self.world.http_port, self.world.tcp_port)
        port = ports[self.number % len(ports)]
        self.counts["nginx"] += WRK_CONNECTIONS
        return wrk.start(self.case, f"http://127.0.0.1:{port}/f700", max(1, int(self.seconds / 4)), WRK_CONNECTIONS)

    def _bodies_port(self):
        ports = (self.world.http_port, self.world.tcp_port, self.world.nginx.port)
        return ports[self.number % len(ports)]

    def _benchmark(self):
        text = self.case.run("benchmark", [paths.program("redis-benchmark"), "-h", "127.0.0.1", "-p", self.world.redis_port, "-c", 20,
                                           "-n", BENCHMARK_REQUESTS, "-t", "set,get", "--csv"], 60)
        check(text.count('"GET"') == 1, f"redis-benchmark gave no figure:\n{text[-500:]}")
        self.counts["redis"] += 2 * 20

    def _check_memcached(self):
        self.case.run("values", [sys.executable, self.case.peer("memcached_check.py"), "--port",
                                 self.world.memcached_port, "--rounds", 1], 60)

    def _count(self, _code, short):
        done = json.loads(short.output().splitlines()[-1])
        for role, count in done.items():
            check(count > 0, f"no short connection to {role}: {done}")
            self.counts[role] += count

    # --- what goes wrong ----------------------------------------------------------------------

    def _kill_a_client(self):
        """SIGKILL in the middle of requests, with the whole group."""
        victim = wrk.start(self.case, f"http://127.0.0.1:{self.world.http_port}/f65536", 60, 8, role="victim")
        wait.until(lambda: self.world.connections() > 8, "the victim to connect", 20, victim.must_run)
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait(20, {-signal.SIGKILL})
        self.killed += 1

    def _detach_and_attach(self):
        for command in ("detach", "attach"):
            self.case.layer.operate(command, "--all")
        self.detached += 1

    def _forget(self):
        """The logs of clients that have ended well: an hour has thousands of them."""
        for process in self.case.processes:
            if process.ended:
                process.log.unlink(missing_ok=True)
