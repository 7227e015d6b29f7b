"""haproxy in front of nginx: HTTP mode, TCP mode, TCP mode with splice between its sockets, and reloads under load."""

import signal

from apps.support import files, haproxy, http, wrk
from apps.support.marks import slow
from apps.support.nginx import Nginx
from testkit import net, paths
from testkit.failure import check

LARGE = 4 * 1024 * 1024 + 1
CONNECTIONS = 6
LOAD_SECONDS = 8
# A leaving worker of HAProxy 2.6.12 drops what its client's buffer does not take at once, without Sidestep too (with
# tune.sndbuf.client 131072 in 4 of 6 runs of 12 s): so every answer must fit into a ring.
RELOAD_SIZES = tuple(size for size in files.SIZES if size < 200_000)

version = haproxy.version

CONFIG = """
global
    maxconn 500
    nbthread 2
    hard-stop-after 5s
defaults
    timeout connect 5s
    timeout client 20s
    timeout server 20s
    {defaults}
frontend in
    bind 127.0.0.1:{port}
    default_backend service
backend service
    server nginx 127.0.0.1:{service}
"""


def start(case, defaults):
    server = Nginx(case, sizes=(*files.SIZES, LARGE))
    port = net.free_port()
    config = case.tmp / "haproxy.cfg"
    config.write_text(CONFIG.format(defaults=defaults, port=port, service=server.port))
    proxy = case.start("haproxy", [paths.program("haproxy"), "-db", "-f", config],
                       stop_signal=signal.SIGUSR1)  # at SIGTERM it kills itself, and writes no report
    net.wait_port(port, proxy)
    return server, port


def test_http_mode(case):
    case.expect_ring("client", "haproxy", "nginx")
    server, port = start(case, "mode http")
    http.check_bodies(case, port, server.site)


def test_tcp_mode(case):
    case.expect_ring("client", "haproxy", "nginx")
    server, port = start(case, "mode tcp")
    http.check_bodies(case, port, server.site)


def test_tcp_mode_with_splice(case):
    """haproxy moves nearly all by splice() from socket to pipe to socket. Such connections may stay on, or go back
    to, the kernel, as splice is the kernel's own work; every byte must arrive all the same."""
    case.expect_seen("client", "haproxy", "nginx")
    server, port = start(case, "mode tcp\n    option splice-request\n    option splice-response")
    http.check_bodies(case, port, server.site)


def test_load(case):
    case.expect_ring("wrk", "haproxy", "nginx", share=0.5)
    _, port = start(case, "mode http")
    counters = wrk.result(wrk.start(case, f"http://127.0.0.1:{port}/hello", 2, 16))
    wrk.check_clean(counters)


def check_reloads(case, make):
    """Reloads while bodies are compared on kept and short connections and in TCP mode: no request may fail."""
    case.expect_ring("client", "wrk", "haproxy", "nginx")
    server = Nginx(case, sizes=RELOAD_SIZES)
    proxy = make(case, server.port)
    # An old process goes on until the last connection in TCP mode has ended: that load ends early.
    loads = [
        case.start("client", http.command(case, port, server.site, "--connections", CONNECTIONS, "--seconds", span))
        for port, span in ((proxy.kept, LOAD_SECONDS), (proxy.raw, LOAD_SECONDS / 4))]
    short = wrk.start(case, f"http://127.0.0.1:{proxy.short}/f700", LOAD_SECONDS, 4)
    reloads = 0
    while short.popen.poll() is None:
        proxy.reload()
        reloads += 1
    check(reloads >= 3, f"only {reloads} reloads in {LOAD_SECONDS} s")
    # Every connection of wrk is a new one: if a listener had been closed for a moment, one would fail.
    wrk.check_clean(wrk.result(short))
    for load in loads:
        load.wait(60)


@slow(120)
def test_reload_with_passed_listeners(case):
    """A new haproxy takes the listeners over from the stats socket of the old one (-x), again and again under load."""
    check_reloads(case, haproxy.Successive)


@slow(120)
def test_reload_of_master_and_worker(case):
    """The master of haproxy -W is reloaded under load; the new worker takes the listeners over from the old one."""
    check_reloads(case, haproxy.MasterWorker)
