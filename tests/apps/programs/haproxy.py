"""haproxy in front of nginx: HTTP mode, TCP mode, and TCP mode with splice between its sockets."""

import signal

from support import files, http, net, paths, wrk
from support.nginx import Nginx

LARGE = 4 * 1024 * 1024 + 1

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
