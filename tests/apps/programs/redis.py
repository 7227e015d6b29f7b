"""redis: its own benchmark, saving by fork under load, data verified before and after, publish/subscribe, replicas."""

import re
import sys

from apps.support import versions
from apps.support.marks import slow
from testkit import net, paths, wait
from testkit.failure import check

CLIENTS = 50
KEYS = 500
SAVES = 3


def version():
    return versions.of(r"v=(\S+)", paths.program("redis-server"), "--version")


class Server:
    def __init__(self, case, *options, role="redis", directory=None):
        self.case = case
        self.port = net.free_port()
        self.process = case.start(role, [
            paths.program("redis-server"), "--port", self.port, "--bind", "127.0.0.1", "--save", "",
            "--dir", directory or case.tmp, "--daemonize", "no", *options])
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

    def info(self, key, section="persistence"):
        found = re.search(rf"^{key}:(.*?)\r?$", self.command("INFO", section), re.MULTILINE)
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
    check_benchmark(server.start_benchmark(100_000))
    check_benchmark(server.start_benchmark(100_000, "-P", 16, "-d", 500))


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


@slow(60)
def test_benchmark_with_threads(case):
    """redis-benchmark with two threads, each with an event loop of its own, against a server with I/O threads."""
    case.expect_ring("benchmark", "redis", share=0.5)
    server = Server(case, "--io-threads", 2, "--io-threads-do-reads", "yes")
    check_benchmark(server.start_benchmark(50_000, "--threads", 2))
    check_benchmark(server.start_benchmark(50_000, "--threads", 2, "-P", 16, "-d", 2000))


@slow(90)
def test_replication(case):
    """A replica starts while its master is written to, by a full copy (made by a forked child) and then the stream of
    commands; afterwards it must hold every key."""
    check_replication(case, "--repl-diskless-sync", "no")


@slow(90)
def test_replication_without_disk(case):
    """The same with a copy that the forked child of the master writes straight into the replica's connection."""
    check_replication(case, "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", 0)


def check_replication(case, *options):
    case.expect_ring("client", "benchmark", "redis")
    case.expect_seen("replica")
    master = Server(case, *options)
    master.check("fill", "--count", KEYS)
    load = master.start_benchmark(2_000_000)
    directory = case.tmp / "replica"
    directory.mkdir()
    replica = Server(case, "--replicaof", f"127.0.0.1 {master.port}", role="replica", directory=directory)
    wait_linked(replica)
    master.check("fill", "--count", 2 * KEYS)
    load.must_run()  # else the copy was not made under load
    load.popen.terminate()
    load.wait(20, {-15, 143})
    check_benchmark(master.start_benchmark(5_000))
    wait.until(lambda: offset(replica, "slave_repl_offset") >= offset(master, "master_repl_offset"),
               "the replica to have all of the stream", 30, replica.process.must_run)
    replica.check("verify", "--count", 2 * KEYS)
    check(master.command("DBSIZE") == replica.command("DBSIZE"), "master and replica have another number of keys")


def wait_linked(replica):
    wait.until(lambda: replica.info("master_link_status", "replication") == "up", "the replica to have the copy", 30,
               replica.process.must_run)


def offset(server, key):
    return int(server.info(key, "replication"))


@slow(60)
def test_monitor(case):
    """redis-cli MONITOR sees every command of another client, in order, while a benchmark runs."""
    case.expect_ring("client", "monitor", "redis")
    server = Server(case)
    monitor = case.start("monitor", [paths.program("redis-cli"), "-p", server.port, "MONITOR"])
    monitor.wait_output(re.compile("^OK", re.MULTILINE))
    load = server.start_benchmark(20_000)
    server.check("fill", "--count", KEYS)
    check_benchmark(load)
    server.command("ECHO", "the last one")
    monitor.wait_output(re.compile('"the last one"'))
    server.process.stop()
    monitor.wait(20, {0, 1})  # redis-cli calls the end of the connection an error
    text = monitor.output()
    seen = re.findall(r'"SET" "key:(\d{1,11})"', text)
    wanted = [str(number) for number in range(KEYS)]
    check(seen == wanted, f"MONITOR shows {len(seen)} SETs of {KEYS}, or in another order")
    load_sets = len(re.findall(r'"SET" "key:\d{12}"', text))
    check(load_sets == 20_000, f"MONITOR shows {load_sets} SETs of the benchmark, not 20000")


@slow(90)
def test_rewrite_of_log_under_load(case):
    """BGREWRITEAOF, by a forked child, three times under load; a server started from the log must hold every key."""
    case.expect_ring("client", "benchmark", "redis")
    server = Server(case, "--appendonly", "yes")
    server.check("fill", "--count", KEYS)
    load = server.start_benchmark(2_000_000)
    for number in range(SAVES):
        rewrite(server, number)
    server.check("fill", "--count", 2 * KEYS)
    load.must_run()  # else the log was not rewritten under load
    load.popen.terminate()
    load.wait(20, {-15, 143})
    check_benchmark(server.start_benchmark(5_000))
    server.process.stop()

    logged = Server(case, "--appendonly", "yes")
    wait.until(lambda: logged.info("loading") == "0", "redis to load its log", 30, logged.process.must_run)
    logged.check("verify", "--count", 2 * KEYS)


def rewrite(server, number):
    check("started" in server.command("BGREWRITEAOF"), f"rewrite {number} of the log was refused")
    wait.until(lambda: server.info("aof_rewrite_in_progress") == "0" and server.info("aof_rewrite_scheduled") == "0",
               f"rewrite {number} of the log", 30, server.process.must_run)
    check(server.info("aof_last_bgrewrite_status") == "ok", f"rewrite {number} of the log failed")
