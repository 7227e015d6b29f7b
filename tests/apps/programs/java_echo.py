"""Java echo server and client: blocking Socket and NIO Selector (OpenJDK polls before it reads, dup2s to close)."""

from apps.support import echo, java, versions
from testkit import paths


def version():
    return versions.of(r'"(\S+)"', paths.program("java"), "-version")


def run(case, server, client, connections=8):
    case.expect_ring("server", "client", share=0.5)
    classes = java.compile_classes(case, "EchoServer", "EchoClient")
    port = echo.start_server(case, [*java.command(classes, "EchoServer"), server])
    echo.run_client(case, [*java.command(classes, "EchoClient"), client, str(port), str(connections)])


def test_blocking(case):
    run(case, "blocking", "blocking")


def test_nio(case):
    run(case, "nio", "nio")


def test_nio_server_blocking_client(case):
    run(case, "nio", "blocking")


def test_python_client(case):
    case.expect_ring("server", "client", share=0.5)
    classes = java.compile_classes(case, "EchoServer")
    port = echo.start_server(case, [*java.command(classes, "EchoServer"), "nio"])
    echo.run_client(case, echo.python_client(case, "epoll", port))
