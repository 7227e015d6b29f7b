"""Java echo server and client: blocking Socket and NIO Selector (OpenJDK polls before it reads, dup2s to close)."""

from support import echo, paths
from support.failure import check

# A small and quickly started JVM: these tests are about sockets.
JVM_OPTIONS = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


def compile_peers(case):
    """Compiles both programs and returns the start of a command line that runs one."""
    classes = case.tmp / "classes"
    sources = [case.peer("java/EchoServer.java"), case.peer("java/EchoClient.java")]
    case.run("javac", [paths.program("javac"), "-d", classes, *sources], seconds=60, preload=False)
    check((classes / "EchoClient.class").exists(), "javac made no class file")
    return [paths.program("java"), *JVM_OPTIONS, "-cp", str(classes)]


def run(case, server, client, connections=8):
    case.expect_ring("server", "client", share=0.5)
    java = compile_peers(case)
    port = echo.start_server(case, [*java, "EchoServer", server])
    echo.run_client(case, [*java, "EchoClient", client, str(port), str(connections)])


def test_blocking(case):
    run(case, "blocking", "blocking")


def test_nio(case):
    run(case, "nio", "nio")


def test_nio_server_blocking_client(case):
    run(case, "nio", "blocking")


def test_python_client(case):
    case.expect_ring("server", "client", share=0.5)
    java = compile_peers(case)
    port = echo.start_server(case, [*java, "EchoServer", "nio"])
    echo.run_client(case, echo.python_client(case, "epoll", port))
