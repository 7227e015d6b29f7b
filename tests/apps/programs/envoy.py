"""Envoy in front of nginx: every body through its HTTP router and its tcp_proxy, and wrk through both."""

from support import files, http, wrk
from support.envoy import Envoy
from support.failure import check
from support.nginx import Nginx

LARGE = 4 * 1024 * 1024 + 1


def start(case):
    case.expect_ring("envoy", "nginx")
    server = Nginx(case, sizes=(*files.SIZES, LARGE))
    return server, Envoy(case, server.port)


def test_http_router_bodies(case):
    case.expect_ring("client")
    server, proxy = start(case)
    http.check_bodies(case, proxy.http_port, server.site)


def test_tcp_proxy_bodies(case):
    case.expect_ring("client")
    server, proxy = start(case)
    http.check_bodies(case, proxy.tcp_port, server.site)


def test_load_through_both(case):
    case.expect_ring("wrk", share=0.5)
    _, proxy = start(case)
    for port in (proxy.http_port, proxy.tcp_port):
        counters = wrk.result(wrk.start(case, f"http://127.0.0.1:{port}/hello", 2, 16))
        wrk.check_clean(counters)
        check(counters["bytes"] > 0, f"wrk received nothing: {counters}")
