"""Programs that the library cannot or must not get into, or that stand under restrictions: set-user-ID, static, with a
seccomp filter, a daemon that closes all descriptors."""

import os
import shutil
import subprocess
import sys

from apps.support import echo, versions
from apps.support.marks import slow
from apps.support.nginx import Nginx
from testkit import paths, wait
from testkit.failure import Failure, check

NOBODY = 65534


def version():
    return versions.of(r"(BusyBox \S+)", paths.program("busybox"))


def check_fetched(server, fetch):
    """Fetches all files of the server by `fetch(url, target)`."""
    for name in server.names:
        target = server.case.tmp / f"got.{name}"
        target.touch(mode=0o666)
        target.chmod(0o666)
        fetch(server.url(name), target)
        check(target.read_bytes() == (server.site / name).read_bytes(), f"/{name}: body differs")


@slow(60)
def test_set_user_id(case):
    """A curl that belongs to another user and has the set-user-ID bit: the loader leaves the library out."""
    if os.geteuid() != 0:
        raise Failure("only root can make a program that runs as another user")
    case.expect_kernel("nginx")
    case.expect_untouched("curl")
    case.tmp.chmod(0o777)
    program = case.tmp / "curl"
    shutil.copy(paths.program("curl"), program)
    os.chown(program, NOBODY, NOBODY)
    program.chmod(0o4755)
    check_fetched(Nginx(case), lambda url, target: case.run("curl", [program, "-sS", "--fail", "-o", target, url]))


@slow(60)
def test_set_user_id_and_a_preload_file(case):
    """/etc/ld.so.preload brings the library into such a program all the same: it does nothing there, and writes nothing
    to a file that whoever started the program has named."""
    if os.geteuid() != 0:
        raise Failure("only root can make a program that runs as another user, and another /etc")
    case.expect_kernel("nginx")
    case.expect_untouched("curl")
    case.tmp.chmod(0o777)
    etc = case.tmp / "etc"
    subprocess.run(["cp", "-a", "/etc", etc], check=True)
    env = {}
    if case.layer is not None:
        (etc / "ld.so.preload").write_text(f"{case.layer.bin_dir / 'libsidestep.so'}\n")
        env = {**case.layer.env(), **case.layer.preload_env(case.report_path("curl"))}
        env.pop("LD_PRELOAD")
    shutil.copy(paths.program("curl"), etc / "curl")
    os.chown(etc / "curl", NOBODY, NOBODY)
    (etc / "curl").chmod(0o4755)
    with_this_etc = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', etc]
    check_fetched(Nginx(case), lambda url, target: case.run(
        "curl", [*with_this_etc, "/etc/curl", "-sS", "--fail", "-o", target, url], preload=False, env=env))


@slow(60)
def test_static(case):
    """A static busybox fetches every file with its wget: no loader, no library."""
    case.expect_kernel("nginx")
    case.expect_untouched("wget")
    check_fetched(Nginx(case), lambda url, target: case.run("wget", [
        paths.program("busybox"), "wget", "-q", "-O", target, url]))


@slow(60)
def test_seccomp_filter_that_kills(case):
    """An echo server that locks itself in after accept: from then on a new socket would be its end, as in OpenSSH."""
    case.expect_seen("server", "client")
    server = case.start("server", [sys.executable, case.peer("locked_echo.py")])
    run_client(case, server, "threads")
    server.wait(10)


@slow(60)
def test_daemon_that_closes_all_descriptors(case):
    """A daemon forks away and closes every descriptor, one by one and by range, and only then listens and serves."""
    case.expect_ring("server", "client")
    server = case.start("server", [sys.executable, case.peer("closing_daemon.py")])
    server.wait(10)
    run_client(case, server, "epoll")


def run_client(case, server, mode):
    port = int(wait.until(lambda: echo.LISTENING.search(server.output()), "the server to listen").group(1))
    echo.run_client(case, echo.python_client(case, mode, port, connections=1))
