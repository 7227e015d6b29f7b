"""Python echo server and client: blocking threads, epoll, poll, select, asyncio, fork; and both ends in one process."""

import sys

from apps.support import echo, versions


def version():
    return versions.of(r"Python (\S+)", sys.executable, "--version")


def run(case, server, client):
    case.expect_ring("server", "client", share=0.5)
    port = echo.start_server(case, echo.python_server(case, server))
    echo.run_client(case, echo.python_client(case, client, port))


def test_blocking(case):
    run(case, "threads", "threads")


def test_epoll(case):
    run(case, "epoll", "epoll")


def test_poll(case):
    run(case, "poll", "poll")


def test_select(case):
    run(case, "select", "select")


def test_asyncio(case):
    run(case, "asyncio", "asyncio")


def test_mixed_ways_of_waiting(case):
    run(case, "epoll", "threads")


def test_fork_after_accept(case):
    case.expect_ring("server", "client")
    port = echo.start_server(case, echo.python_server(case, "fork"))
    echo.run_client(case, echo.python_client(case, "threads", port))


def alone(case, mode):
    """Client and server are one process."""
    case.expect_ring("client")
    echo.run_client(case, [sys.executable, case.peer("echo_alone.py"), "--mode", mode, "--connections", "4"])


def test_one_process_blocking(case):
    alone(case, "threads")


def test_one_process_epoll(case):
    alone(case, "epoll")
