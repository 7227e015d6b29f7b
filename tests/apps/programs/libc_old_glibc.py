"""Programs of an older glibc, that of Debian 11: echo servers and clients in C, Debian's own python3 and redis."""

import re
import sys

from apps.support import echo, libc_echo, versions
from apps.support.libcs import DEBIAN_11, OLD
from testkit import net
from testkit.failure import check


def version():
    return versions.of(r"GLIBC (\S+)\)", DEBIAN_11.loader, DEBIAN_11.file("lib/x86_64-linux-gnu/libc.so.6"))


def test_threads(case):
    libc_echo.run(case, OLD, "threads", "read", client_waits="threads")


def test_poll(case):
    libc_echo.run(case, OLD, "poll", "vectors")


def test_select(case):
    libc_echo.run(case, OLD, "select", "recv", client_waits="select")


def test_epoll(case):
    libc_echo.run(case, OLD, "epoll", "messages", client_waits="epoll")


def test_fork(case):
    libc_echo.run(case, OLD, "fork", "dprintf")


def test_exec(case):
    libc_echo.run_exec(case, OLD)


def test_cancelled_threads(case):
    libc_echo.run_cancel(case, OLD)


def test_passed_descriptor(case):
    libc_echo.run_pass(case, OLD)


def test_daemon(case):
    libc_echo.run_daemon(case, OLD)


def test_newer_client(case):
    libc_echo.run_with_host(case, OLD)


def test_newer_server(case):
    libc_echo.run_from_host(case, OLD)


def test_no_sockets(case):
    """Its executable is linked against libc alone, where older versions of glibc have no dlsym()."""
    libc_echo.run_hello(case, OLD)


def test_function_of_a_library_that_is_loaded_later(case):
    """librt, which has aio_read(), comes with a plugin, long after the library has looked for all functions."""
    case.expect_unused("hello")
    plugin = OLD.library("late.c", ("-lrt",))
    process = case.start("hello", [OLD.program("late_main.c"), plugin])
    process.wait(10, {42})
    check(process.output() == "late\n", f"read late: {process.output()!r}")


def test_overrides(case):
    libc_echo.run_overrides(case, OLD)


def python(case, peer, *options):
    return [*DEBIAN_11.command("usr/bin/python3.9"), case.peer(peer), *options]


def test_python(case):
    """Debian's python3: asyncio serves, threads ask."""
    case.expect_ring("server", "client", share=0.5)
    env = {"PYTHONHOME": DEBIAN_11.file("usr")}
    server = case.start("server", python(case, "echo_server.py", "--mode", "asyncio"), env=env)
    port = int(server.wait_output(echo.LISTENING, 30).group(1))
    echo.run_client(case, python(case, "echo_client.py", "--mode", "threads", "--port", port), env=env)


def test_redis(case):
    """Debian's redis: its own benchmark, and data verified by a client of this machine's glibc."""
    case.expect_ring("redis", "benchmark", "client")
    port = net.free_port()
    server = case.start("redis", [*DEBIAN_11.command("usr/bin/redis-server"), "--port", port, "--bind", "127.0.0.1",
                                  "--save", "", "--dir", case.tmp, "--daemonize", "no"])
    net.wait_port(port, server)
    benchmark = [*DEBIAN_11.command("usr/bin/redis-benchmark"), "-h", "127.0.0.1", "-p", port, "-c", 20, "-n", 10_000,
                 "-t", "set,get", "--csv"]
    text = case.run("benchmark", benchmark, seconds=60)
    for test in ("SET", "GET"):
        check(re.search(rf'^"{test}","[1-9]', text, re.MULTILINE), f"redis-benchmark gave no figure for {test}: {text}")
    for action in ("fill", "verify"):
        done = case.run_json("client", [sys.executable, case.peer("redis_check.py"), action, "--port", port,
                                        "--count", 300])
        check(done["done"] > 0, f"redis_check.py {action} did nothing")
