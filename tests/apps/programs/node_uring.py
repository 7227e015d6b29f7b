"""Node.js 24, whose event loop (libuv from 1.50 on) changes its epoll sets by io_uring."""

import os

from apps.support import certificates, echo, pypi, sides, versions
from apps.support.marks import slow
from testkit.failure import check


def version():
    return versions.of(r"v(\S+)", pypi.node(), "--version")


def run(case, name, **env):
    """Runs both sides of one script and returns what the client says at its end."""
    return sides.run(case, [pypi.node(), case.peer(f"node/{name}.js")], env)


def has_io_uring(pid):
    links = (os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
    return any("io_uring" in link for link in links)


@slow(90)
def test_echo(case):
    """Echo server and client, forty connections; the server has an io_uring."""
    case.expect_ring("server", "client", share=0.5)
    port = echo.start_server(case, [pypi.node(), case.peer("echo_server.js")])
    check(has_io_uring(case.processes[0].pid), "this Node.js uses no io_uring: the test shows nothing")
    echo.run_client(case, [pypi.node(), case.peer("echo_client.js"), str(port), "40"])


@slow(90)
def test_echo_without_io_uring(case):
    """The same where io_uring cannot be set up."""
    case.expect_ring("server", "client", share=0.5)
    refused = {"SIDESTEP_IO_URING": "refuse"}
    server = case.start("server", [pypi.node(), case.peer("echo_server.js")], env=refused)
    port = int(server.wait_output(echo.LISTENING, 30).group(1))
    if case.layer is not None:
        check(not has_io_uring(server.pid), "io_uring was not refused")
    echo.run_client(case, [pypi.node(), case.peer("echo_client.js"), str(port), "40"], env=refused)


@slow(90)
def test_keep_alive(case):
    """HTTP/1.1 on kept connections."""
    case.expect_ring("server", "client", share=0.5)
    run(case, "keep_alive")


@slow(120)
def test_half_close(case):
    """allowHalfOpen: either side ends its direction first, and data follows in the other."""
    case.expect_ring("server", "client")
    run(case, "half_close")


@slow(90)
def test_short_connections(case):
    """4000 short connections: numbers are used again and again."""
    case.expect_ring("server", "client")
    run(case, "short")


@slow(90)
def test_tls(case):
    """TLS with half-close and resumed sessions."""
    case.expect_ring("server", "client", share=0.5)
    run(case, "tls", CERTIFICATES=str(certificates.make(case)))


@slow(90)
def test_worker_threads(case):
    """Several event loops, each with an io_uring of its own; a thread is ended in mid-stream and replaced."""
    case.expect_ring("server", "client")
    run(case, "workers")


@slow(90)
def test_resets(case):
    """Connections that are reset by either side."""
    case.expect_ring("server", "client")
    run(case, "reset")
