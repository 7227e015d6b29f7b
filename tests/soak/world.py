"""The services of a pass, and which processes belong to each."""

import json
import subprocess
import sys
from pathlib import Path

from apps.support import envoy
from apps.support.nginx import Nginx
from soak import sampling
from testkit import net, paths, procfs, wait
from testkit.failure import Failure

HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
PEER = Path(__file__).resolve().parent / "peers" / "idle.py"
IDLE_EACH = 10


class World:
    """nginx, another nginx that is reloaded, Envoy, redis, memcached, and a client whose connections sit still."""

    def __init__(self, case):
        self.case = case
        self.nginx = Nginx(case)
        self.reloaded = self._second_nginx(case)
        self._start_envoy()
        self.redis_port, self.redis = start_redis(case)
        self.memcached_port, self.memcached = self._start_memcached()
        self.idle = None

    def _second_nginx(self, case):
        """With a directory of its own: both want to write the same files."""
        folder = case.tmp / "reloaded"
        folder.mkdir()
        return Nginx(_Below(case, folder))

    def _start_envoy(self):
        self.http_port, self.tcp_port = net.free_port(), net.free_port()
        configuration = envoy.configuration(self.http_port, self.tcp_port, self.nginx.port)
        # Its pool to nginx is empty again soon after a load, so that what is held then can be counted exactly.
        configuration["static_resources"]["clusters"][0]["typed_extension_protocol_options"] = {HTTP_OPTIONS: {
            "@type": f"type.googleapis.com/{HTTP_OPTIONS}", "explicit_http_config": {"http_protocol_options": {}},
            "common_http_protocol_options": {"idle_timeout": "0.3s"}}}
        config = self.case.tmp / "envoy.json"
        config.write_text(json.dumps(configuration))
        self.envoy = self.case.start("envoy", [paths.envoy(), "-c", config, "--concurrency", "2",
                                               "--disable-hot-restart", "--log-level", "error"])
        for port in (self.http_port, self.tcp_port):
            net.wait_port(port, self.envoy, 30)

    def _start_memcached(self):
        port = net.free_port()
        # The threads that tidy its lists wake up the oftener the more it has stored, and so would not rest alike.
        process = self.case.start("memcached", [paths.program("memcached"), "-l", "127.0.0.1", "-p", port, "-U", 0,
                                                "-t", 2, "-m", 64, "-u", "root",
                                                "-o", "no_lru_maintainer,no_lru_crawler"])
        net.wait_port(port, process)
        return port, process

    def ports(self):
        return (self.nginx.port, self.reloaded.port, self.http_port, self.tcp_port, self.redis_port,
                self.memcached_port)

    def start_idle(self):
        places = [("http", self.nginx.port), ("http", self.http_port), ("http", self.tcp_port),
                  ("redis", self.redis_port), ("memcached", self.memcached_port)]
        self.idle = Idle(self.case, [(*place, IDLE_EACH) for place in places])
        self.held = IDLE_EACH * len(places)

    def roles(self):
        """Name -> running processes. The broker is one of them under Sidestep."""
        roles = {
            "nginx": self._family(self.nginx.process), "reloaded": self._family(self.reloaded.process),
            "envoy": [self.envoy.pid], "redis": [self.redis.pid], "memcached": [self.memcached.pid]}
        if self.idle is not None:
            roles["idle"] = [self.idle.process.pid]
        if self.case.layer is not None:
            roles["sidestepd"] = self.case.layer.broker_pids()
        return roles

    @staticmethod
    def _family(process):
        return sorted(procfs.group_members(process.pid))

    def sample(self):
        return {role: sampling.of(pids) for role, pids in self.roles().items()}

    def must_run(self):
        for process in (self.nginx.process, self.reloaded.process, self.envoy, self.redis, self.memcached):
            process.must_run()

    def connections(self):
        return connections(self.ports())

    def wait_rest(self, ends, seconds=30):
        """Waits until only the idle connections are there, at both ends."""
        try:
            wait.until(lambda: self.connections() == ends, "rest", seconds, self.must_run)
        except Failure as failure:
            raise Failure(f"{failure}: {self.connections()} ends of connections, not {ends}") from None


def connections(ports):
    """Ends of connections with these ports that a process holds. ss has the kernel choose by state: there are tens of
    thousands in TIME_WAIT."""
    done = subprocess.run([paths.program("ss"), "-Htn", "state", "established", "state", "close-wait"], check=True,
                          capture_output=True, text=True, timeout=20)
    wanted = {str(port) for port in ports}
    return sum(any(word.rpartition(":")[2] in wanted for word in line.split()[3:5])
               for line in done.stdout.splitlines())


class _Below:
    """The same case with another directory for a second server of the same kind."""

    def __init__(self, case, tmp):
        self._case, self.tmp = case, tmp

    def start(self, role, argv, **options):
        return self._case.start(f"{role}-reloaded", argv, **options)

    def run(self, role, argv, **options):
        return self._case.run(role, argv, **options)


def start_redis(case):
    """Without persistence; its port and process."""
    port = net.free_port()
    process = case.start("redis", [paths.program("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "",
                                   "--dir", case.tmp, "--daemonize", "no"])
    net.wait_port(port, process)
    return port, process


class Idle:
    """The client of peers/idle.py; `places` are (protocol, port, connections)."""

    def __init__(self, case, places, role="idle", preload=True):
        words = (":".join(map(str, place)) for place in places)
        self.process = case.start(role, [sys.executable, PEER, *words], preload=preload, stdin=subprocess.PIPE)
        self.answers = 0
        self._await_answer()

    def ask(self):
        """One request on each connection: it must still live."""
        self.process.popen.stdin.write(b"ask\n")
        self.process.popen.stdin.flush()
        self._await_answer()

    def end(self):
        self.process.popen.stdin.close()
        self.process.wait(20)

    def _await_answer(self):
        self.answers += 1
        wait.until(lambda: self.process.output().count('"asked"') >= self.answers, "the idle connections to answer", 30,
                   self.process.must_run)
