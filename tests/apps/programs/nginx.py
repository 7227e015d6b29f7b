"""nginx: bodies of static files of many sizes, with sendfile and without, through reload and binary upgrade."""

from support import files, http
from support.failure import check
from support.nginx import Nginx

# More than any socket buffer or ring holds.
LARGE = 8 * 1024 * 1024 + 3

# nginx passes nothing of its environment on to the new binary but what it is told to.
KEEP_ENVIRONMENT = "\n".join(f"env {name};" for name in (
    "LD_PRELOAD", "SIDESTEP_BROKER", "SIDESTEP_UPGRADE_AFTER", "SIDESTEP_REPORT", "SIDESTEP_FLIP", "SIDESTEP_SPIN",
    "SIDESTEP_RING_SIZE", "SIDESTEP_LOG"))


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
