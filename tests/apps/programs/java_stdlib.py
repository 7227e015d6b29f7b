"""OpenJDK's own libraries: sockets, channels, java.net.http, com.sun.net.httpserver, javax.net.ssl, virtual threads.

Debian 12 has OpenJDK 17, which has no virtual threads; the tests of these use a newer one.
"""

from apps.support import certificates, java, sides, versions
from apps.support.marks import slow
from testkit import paths


def version():
    """Both: that of Debian and the one for virtual threads."""
    programs = (paths.program("java"), java.newest())
    return " and ".join(versions.of(r'"(\S+)"', program, "-version") for program in programs)


def run(case, name, *more, program=None, **env):
    """Runs both sides of one class; `more`: what else is to be compiled with it."""
    classes = java.compile_classes(case, "Peers", *more, name)
    return sides.run(case, java.command(classes, name, program), env)


@slow(90)
def test_http(case):
    """HttpClient and HttpServer on kept connections, one by one and many at once; a request that is given up."""
    case.expect_ring("server", "client", share=0.5)
    run(case, "HttpKeepAlive")


@slow(60)
def test_half_close(case):
    """shutdownOutput of either side, and shutdownInput with and without a thread that is blocked in read()."""
    case.expect_ring("server", "client")
    run(case, "HalfClose")


@slow(60)
def test_timeouts(case):
    """SO_TIMEOUT of sockets and listeners: nothing is lost, and the connection goes on."""
    case.expect_ring("server", "client", share=0.5)
    run(case, "Timeouts")


@slow(90)
def test_short_connections(case):
    """3000 short connections, closed first by either side."""
    case.expect_ring("server", "client")
    run(case, "ShortConnections")


@slow(90)
def test_tls_sockets(case):
    """SSLSocket in TLS 1.2 and 1.3 with checked certificate."""
    case.expect_ring("server", "client", share=0.25)
    run(case, "Secure", "HttpKeepAlive", TLS="sockets", CERTIFICATES=str(certificates.make(case)))


@slow(90)
def test_https(case):
    """HttpsServer and HttpClient (SSLEngine on non-blocking channels) with checked certificate."""
    case.expect_ring("server", "client", share=0.5)
    run(case, "Secure", "HttpKeepAlive", TLS="https", CERTIFICATES=str(certificates.make(case)))


@slow(120)
def test_selector_reopen(case):
    """One Selector whose 150 channels are closed in four ways and replaced, 1200 in all (dup2 onto live numbers)."""
    case.expect_ring("server", "client")
    run(case, "Reopen", "EchoServer")


@slow(120)
def test_async_channels(case):
    """AsynchronousSocketChannel: handlers, futures, gathering writes, timeouts, close under a pending read."""
    case.expect_ring("server", "client", share=0.5)
    run(case, "AsyncChannels")


@slow(120)
def test_close_blocked(case):
    """A socket is closed, or the thread interrupted, while a thread is blocked in read, write or accept."""
    case.expect_ring("server", "client")
    run(case, "CloseBlocked")


@slow(90)
def test_virtual_threads(case):
    """Blocking sockets in virtual threads: 120 connections at once."""
    case.expect_ring("server", "client", share=0.8)
    run(case, "Echoes", program=java.newest(), THREADS="virtual")


@slow(90)
def test_virtual_close_blocked(case):
    """A socket is closed, or the virtual thread interrupted, while one is blocked in read, write or accept."""
    case.expect_ring("server", "client")
    run(case, "CloseBlocked", program=java.newest(), THREADS="virtual")


@slow(60)
def test_virtual_timeouts(case):
    """SO_TIMEOUT in virtual threads."""
    case.expect_ring("server", "client")
    run(case, "Timeouts", program=java.newest(), THREADS="virtual")
