"""redis: its own benchmark, saving by fork under load, data verified before and after, publish/subscribe."""

import re
import sys

from support import net, paths, wait
from support.failure import check

CLIENTS = 50
KEYS = 500
SAVES = 3


class Server:
    def __init__(self, case, *options):
        self.case = case
        self.port = net.free_port()
        self.process = case.start("redis", [
            paths.program("redis-server"), "--port", self.port, "--bind", "127.0.0.1", "--save", "",
            "--dir", case.tmp, "--daemonize", "no", *options])
        net.wait_port(self.port, self.process)

    def check(self, action, *options):
        """Runs the checking client; its count of verified things must not be zero."""
        result = self.case.run_json("client", [sys.executable, self.case.peer("redis_check.py"), action,
                                               "--port", str(self.port), *map(str, options)])
        check(result["done"] > 0, f"redis_check.py {action} did nothing")

    def start_benchmark(self, requests, *options):
        return self.case.start("benchmark", [
            paths.program("redis-benchmark"), "-h", "127.0.0.1", "-p", self.port, "-c", CLIENTS, "-n", requests,
            "-r", 1000, "-t", "set,get", "--csv", *options])

    def command(self, *words):
        """One command by redis-cli, not preloaded: such clients must work beside the others."""
        return self.case.run("redis-cli", [paths.program("redis-cli"), "-p", self.port, *words], preload=False)

    def info(self, key):
        found = re.search(rf"^{key}:(.*?)\r?$", self.command("INFO", "persistence"), re.MULTILINE)
        check(found, f"redis INFO has no {key}")
        return found.group(1)


def check_benchmark(process, seconds=60):
    process.wait(seconds)
    for test in ("SET", "GET"):
        found = re.search(rf'^"{test}","([0-9.]+)"', process.output(), re.MULTILINE)
        check(found and float(found.group(1)) > 0, f"redis-benchmark gave no figure for {test}:\n{process.tail()}")


def test_benchmark(case):
    case.expect_ring("benchmark", "redis", share=0.5)
    server = Server(case)
    check_benchmark(server.start_benchmark(20_000))
    check_benchmark(server.start_benchmark(20_000, "-P", 16, "-d", 500))


def test_benchmark_with_io_threads(case):
    case.expect_ring("benchmark", "client", "redis")
    server = Server(case, "--io-threads", 2, "--io-threads-do-reads", "yes")
    check_benchmark(server.start_benchmark(20_000))
    server.check("fill", "--count", KEYS)
    server.check("verify", "--count", KEYS)


def test_data(case):
    case.expect_ring("client", "redis", share=0.5)
    server = Server(case)
    server.check("fill", "--count", KEYS)
    server.check("verify", "--count", KEYS)


def test_bgsave_under_load(case):
    """redis saves in a forked child that shares every client's socket, while the clients go on."""
    case.expect_ring("client", "benchmark", "redis")
    server = Server(case)
    server.check("fill", "--count", KEYS)
    load = server.start_benchmark(2_000_000)
    for number in range(SAVES):
        save(server, number)
    load.must_run()  # else the saves were not under load
    load.popen.terminate()
    load.wait(20, {-15, 143})
    check_benchmark(server.start_benchmark(5_000))
    server.check("verify", "--count", KEYS)
    server.process.stop()

    saved = Server(case)  # starts from the saved file
    saved.check("verify", "--count", KEYS)


def save(server, number):
    saves_before = int(server.info("rdb_saves"))
    server.command("BGSAVE")
    wait.until(lambda: int(server.info("rdb_saves")) > saves_before and server.info("rdb_bgsave_in_progress") == "0",
               f"save {number} of redis", 30, server.process.must_run)
    check(server.info("rdb_last_bgsave_status") == "ok", f"save {number} of redis failed")


def test_publish_subscribe(case):
    case.expect_ring("client", "redis")
    Server(case).check("pubsub", "--count", 300, "--subscribers", 4)
