"""nginx: bodies of static files of many sizes, with sendfile and without, through reload and binary upgrade; and as a
proxy in front of another nginx."""

from types import SimpleNamespace

from apps.programs import curl
from apps.support import files, http, versions, wrk
from apps.support.marks import slow
from apps.support.nginx import Nginx
from apps.support.nginx_proxy import NginxProxy
from testkit import paths
from testkit.failure import check

# More than any socket buffer or ring holds.
LARGE = 8 * 1024 * 1024 + 3

# nginx passes nothing of its environment on to the new binary but what it is told to.
KEEP_ENVIRONMENT = "\n".join(f"env {name};" for name in (
    "LD_PRELOAD", "SIDESTEP_BROKER", "SIDESTEP_UPGRADE_AFTER", "SIDESTEP_REPORT", "SIDESTEP_FLIP", "SIDESTEP_SPIN",
    "SIDESTEP_RING_SIZE", "SIDESTEP_LOG"))


def version():
    return versions.of(r"nginx/(\S+)", paths.program("nginx"), "-v")


def check_bodies(case, sendfile):
    case.expect_ring("client", "nginx", share=0.5)
    server = Nginx(case, sendfile, sizes=(*files.SIZES, LARGE))
    http.check_bodies(case, server.port, server.site)


def test_bodies_with_sendfile(case):
    check_bodies(case, sendfile=True)


def test_bodies_without_sendfile(case):
    check_bodies(case, sendfile=False)


def test_bodies_through_reloads(case):
    case.expect_ring("client", "nginx")
    server = Nginx(case)
    load = case.start("client", http.command(case, server.port, server.site, "--connections", 4, "--seconds", 3))
    reloads = 0
    while load.popen.poll() is None:
        server.reload()
        reloads += 1
    load.wait(20)
    check(reloads >= 3, f"only {reloads} reloads")


def test_bodies_through_binary_upgrade(case):
    case.expect_ring("client", "nginx")
    server = Nginx(case, main=KEEP_ENVIRONMENT, daemon=True)
    load = case.start("client", http.command(case, server.port, server.site, "--connections", 4, "--seconds", 3))
    server.replace_binary()
    load.wait(30)


def check_proxied_bodies(case, sendfile):
    """All bodies by every way through the proxy, one after the other, and then all ways at once beside load."""
    case.expect_ring("client", "wrk", "proxy", "nginx")
    server = Nginx(case, sendfile, sizes=(*files.SIZES, LARGE))
    proxy = NginxProxy(case, server, sendfile)
    ways = (proxy.buffered, proxy.unbuffered, proxy.stream)
    for port in ways:
        http.check_bodies(case, port, server.site)
    load = wrk.start(case, f"http://127.0.0.1:{proxy.buffered}/f700", 3, 16)
    clients = [case.start("client", http.command(case, port, server.site, "--rounds", 2)) for port in ways]
    wrk.check_clean(wrk.result(load))
    for client in clients:
        client.wait(60)


@slow(120)
def test_proxy_with_sendfile(case):
    """Four workers as an HTTP proxy with kept upstream connections, with and without buffers, and as a stream proxy,
    to a server with sendfile: bodies one after the other, and all at once beside wrk."""
    check_proxied_bodies(case, sendfile=True)


@slow(120)
def test_proxy_without_sendfile(case):
    """The same with sendfile switched off in proxy and server."""
    check_proxied_bodies(case, sendfile=False)


@slow(90)
def test_uploads_through_proxy(case):
    """Bodies of all sizes are sent through the proxy, with and without buffers; what is stored must be the body."""
    case.expect_ring("curl", "proxy", "nginx")
    server = Nginx(case)
    proxy = NginxProxy(case, server)
    for port in (proxy.buffered, proxy.unbuffered, proxy.stream):
        front = SimpleNamespace(url=lambda path, port=port: f"http://127.0.0.1:{port}/{path}", uploads=server.uploads)
        curl.upload(case, front, "PUT", "up")
        for stored in server.uploads.iterdir():
            stored.unlink()
