"""Envoy in front of nginx: every body through its HTTP router and its tcp_proxy, by HTTP/1 and HTTP/2, through load
and through hot restarts."""

import json

from apps.support import files, h2load, http, http2, versions, wrk
from apps.support.envoy import Envoy
from apps.support.envoy_restart import Envoys
from apps.support.marks import slow
from apps.support.nginx import Nginx
from testkit import paths
from testkit.failure import check

LARGE = 4 * 1024 * 1024 + 1
CONNECTIONS = 6
RESTARTS = 2
LOAD_SECONDS = 10


def version():
    return versions.of(r"/(\d+\.\d+\.\d+)/", paths.envoy(), "--version")


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


@slow(90)
def test_http2_bodies(case):
    """curl speaks HTTP/2 with Envoy, which speaks HTTP/1 with nginx; ten bodies at once."""
    case.expect_ring("curl")
    server, proxy = start(case)
    http2.check_bodies(case, proxy.http_port, server.site, server.names)


@slow(90)
def test_http2_load(case):
    """h2load with two threads and 16 streams a connection; the bodies must add up to the byte."""
    case.expect_ring("h2load", share=0.5)
    _, proxy = start(case)
    for name, requests in (("f700", 20_000), ("f65535", 2_000)):
        h2load.run(case, f"http://127.0.0.1:{proxy.http_port}/{name}", requests, int(name[1:]), "-m", 16)


@slow(90)
def test_bodies_beside_load(case):
    """Bodies by HTTP/1, HTTP/2 and tcp_proxy are compared while wrk and h2load keep both workers of Envoy busy."""
    case.expect_ring("client", "curl", "wrk", "h2load")
    server, proxy = start(case)
    requests, base = 20_000, f"http://127.0.0.1:{proxy.http_port}"
    loads = wrk.start(case, f"http://127.0.0.1:{proxy.tcp_port}/f4096", 5, 8)
    streams = h2load.start(case, f"{base}/f700", requests, "-m", 16)
    http.check_bodies(case, proxy.http_port, server.site, rounds=1)
    http.check_bodies(case, proxy.tcp_port, server.site, rounds=1)
    http2.check_bodies(case, proxy.http_port, server.site, server.names, rounds=1)
    wrk.check_clean(wrk.result(loads))
    h2load.check_result(streams, requests, 700)


@slow(120)
def test_hot_restart(case):
    """Two hot restarts under load by HTTP/1, then HTTP/2: the listeners are passed on, connections are drained."""
    case.expect_ring("client", "curl", "envoy", "nginx")
    server = Nginx(case)
    proxy = Envoys(case, server.port)
    load = case.start("client", http.command(case, proxy.http_port, server.site, "--connections", CONNECTIONS,
                                             "--seconds", LOAD_SECONDS))
    for _ in range(RESTARTS):
        proxy.restart()
        http2.check_bodies(case, proxy.http_port, server.site, server.names)
        load.must_run()  # else the restart was not under load
    load.wait(40)
    result = json.loads(load.output().splitlines()[-1])
    check(result["connections"] > CONNECTIONS, f"no connection came to a new Envoy: {result}")
    # The end of an idle connection can meet a request that is on its way, once for each connection and restart.
    check(result["retries"] <= RESTARTS * CONNECTIONS, f"too many requests were sent again: {result}")
