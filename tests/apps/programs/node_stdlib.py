"""Node.js's own modules: net, http, https, tls, fetch, worker_threads, cluster and child_process.

How much of a stream goes by ring is not asked where connections end by a half-close: what follows it goes by kernel.
"""

from apps.support import certificates, sides, versions
from apps.support.marks import slow
from testkit import paths
from testkit.failure import check


def version():
    return versions.of(r"v(\S+)", paths.program("node"), "--version")


def run(case, name, **env):
    """Runs both sides of one script and returns what the client says at its end."""
    return sides.run(case, [paths.program("node"), case.peer(f"node/{name}.js")], env)


@slow(60)
def test_keep_alive(case):
    """HTTP/1.1 on kept connections: http.Agent and fetch, bodies with length and in chunks, 100-continue, idle ends."""
    case.expect_ring("server", "client", share=0.5)
    run(case, "keep_alive")


@slow(120)
def test_half_close(case):
    """allowHalfOpen: the client, the server or both end their direction first, and data follows in the other."""
    case.expect_ring("server", "client")
    run(case, "half_close")


@slow(60)
def test_timeouts(case):
    """socket.setTimeout on idle and busy connections, the server's timeouts for slow requests, and AbortSignal."""
    case.expect_ring("server", "client")
    run(case, "timeouts")


@slow(90)
def test_short_connections(case):
    """4000 short connections, closed first by either side."""
    case.expect_ring("server", "client")
    run(case, "short")


@slow(90)
def test_tls(case):
    """TLS 1.2 and 1.3 with checked certificate, half-close and resumed sessions; HTTPS on kept connections."""
    case.expect_ring("server", "client", share=0.5)
    run(case, "tls", CERTIFICATES=str(certificates.make(case)))


@slow(90)
def test_worker_threads(case):
    """Servers and clients in several threads of one process; a thread is ended in mid-stream and replaced."""
    case.expect_ring("server", "client")
    run(case, "workers")


@slow(120)
def test_cluster(case):
    """cluster with a shared listening socket: its worker processes accept by themselves."""
    case.expect_ring("server", "client")
    run(case, "cluster", HOW="shared")


@slow(60)
def test_cluster_passed(case):
    """cluster in its default policy: the primary accepts, and passes each connection to a worker before its first
    byte. A passed connection stays on the kernel."""
    case.expect_kernel("client")
    result = run(case, "cluster", HOW="passed")
    check(result["workers"] == 2, f"the connections went to {result['workers']} workers, not to 2")


@slow(60)
def test_passed_in_use(case):
    """Connections that are in use and have unread bytes are passed to a child process (child.send)."""
    case.expect_ring("server", "client")
    run(case, "pass")


@slow(90)
def test_pipelining(case):
    """HTTP pipelining into back-pressure: 3000 requests on a connection while nobody reads the answers."""
    case.expect_ring("server", "client")
    run(case, "pipelining")


@slow(120)
def test_reset(case):
    """Resets: resetAndDestroy on either side, close with unread bytes, and in the middle of a request."""
    case.expect_ring("server", "client", share=0.5)
    run(case, "reset")
