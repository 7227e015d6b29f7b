"""h2load of nghttp2 against nginx: HTTP/2 without TLS and HTTP/1, one thread and several; bodies add up to the byte."""

from apps.support import h2load, http2
from apps.support.marks import slow
from apps.support.nginx import Nginx
from apps.support.nginx_proxy import NginxProxy

version = h2load.version


@slow(60)
def test_http2(case):
    """Many streams a connection, two threads, small and large bodies; then curl compares every body by HTTP/2."""
    case.expect_ring("h2load", "curl", "proxy")
    server = Nginx(case)
    proxy = NginxProxy(case, server)
    base = f"http://127.0.0.1:{proxy.http2}"
    h2load.run(case, f"{base}/f700", 20_000, 700, "-m", 32)
    h2load.run(case, f"{base}/f1048577", 100, 1_048_577, "-m", 4)
    http2.check_bodies(case, proxy.http2, server.site, server.names)


@slow(60)
def test_http2_through_proxy(case):
    """HTTP/2 at the front, HTTP/1 with kept connections behind; small windows, so that streams stop and go on."""
    case.expect_ring("h2load", "proxy", "nginx")
    proxy = NginxProxy(case, Nginx(case))
    url = f"http://127.0.0.1:{proxy.http2}/proxy/f65536"
    h2load.run(case, url, 2_000, 65_536, "-m", 8, "-w", 14, "-W", 15)


@slow(60)
def test_http1(case):
    """HTTP/1.1 on 32 kept connections of two threads."""
    case.expect_ring("h2load", "nginx", share=0.5)
    server = Nginx(case)
    h2load.run(case, server.url("f4096"), 30_000, 4096, "--h1", clients=32)
