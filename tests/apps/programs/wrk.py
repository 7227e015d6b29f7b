"""wrk against nginx with two workers: plain load, and load while nginx reloads its configuration."""

from apps.support import versions, wrk
from apps.support.nginx import Nginx
from testkit import paths
from testkit.failure import check

CONNECTIONS = 16
LOAD_SECONDS = 4


def version():
    return versions.of(r"wrk (?:debian/)?(\S+)", paths.program("wrk"), "-v")


def test_load(case):
    case.expect_ring("wrk", "nginx", share=0.5)
    server = Nginx(case)
    wrk.check_clean(wrk.result(wrk.start(case, server.url("hello"), 2, CONNECTIONS)))
    wrk.check_clean(wrk.result(wrk.start(case, server.url("f4096"), 1, 1)))


def test_reload_under_load(case):
    case.expect_ring("wrk", "nginx")
    server = Nginx(case)
    load = wrk.start(case, server.url("f700"), LOAD_SECONDS, CONNECTIONS)
    reloads = 0
    while load.popen.poll() is None:
        server.reload()
        reloads += 1
    counters = wrk.result(load)
    check(reloads >= 3, f"only {reloads} reloads in {LOAD_SECONDS} s")
    # A worker that ends closes its idle kept connections; a request that is just on its way there is lost for
    # wrk, which does not send it again. That can happen once for each connection and reload, and nothing else.
    lost = counters.pop("read") + counters.pop("write")
    check(lost <= reloads * CONNECTIONS, f"{lost} requests lost in {reloads} reloads of {CONNECTIONS} connections")
    wrk.check_clean(counters)
