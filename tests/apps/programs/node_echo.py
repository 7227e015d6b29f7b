"""Node.js echo server and client (libuv: raw close, accept and epoll calls): many connections, half-close."""

from apps.support import echo, versions
from testkit import paths


def version():
    return versions.of(r"v(\S+)", paths.program("node"), "--version")


def test_node_to_node(case):
    case.expect_ring("server", "client", share=0.5)
    port = echo.start_server(case, echo.node_server(case))
    echo.run_client(case, echo.node_client(case, port, connections=40))


def test_node_to_python(case):
    case.expect_ring("server", "client", share=0.5)
    port = echo.start_server(case, echo.python_server(case, "epoll"))
    echo.run_client(case, echo.node_client(case, port))


def test_python_to_node(case):
    case.expect_ring("server", "client", share=0.5)
    port = echo.start_server(case, echo.node_server(case))
    echo.run_client(case, echo.python_client(case, "epoll", port))
