"""Programs of musl: echo servers and clients in C, in every way of waiting and of moving bytes."""


from apps.support import libc_echo, versions
from apps.support.libcs import MUSL

LOADER = "/lib/ld-musl-x86_64.so.1"


def version():
    return versions.of(r"Version (\S+)", LOADER)


def test_threads(case):
    libc_echo.run(case, MUSL, "threads", "read", client_waits="threads")


def test_poll(case):
    libc_echo.run(case, MUSL, "poll", "vectors")


def test_select(case):
    libc_echo.run(case, MUSL, "select", "recv", client_waits="select")


def test_epoll(case):
    libc_echo.run(case, MUSL, "epoll", "messages", client_waits="epoll")


def test_fork(case):
    libc_echo.run(case, MUSL, "fork", "read")


def test_dprintf(case):
    libc_echo.run(case, MUSL, "threads", "dprintf")


def test_exec(case):
    libc_echo.run_exec(case, MUSL)


def test_cancelled_threads(case):
    libc_echo.run_cancel(case, MUSL)


def test_passed_descriptor(case):
    libc_echo.run_pass(case, MUSL)


def test_daemon(case):
    libc_echo.run_daemon(case, MUSL)


def test_glibc_client(case):
    libc_echo.run_with_host(case, MUSL)


def test_glibc_server(case):
    libc_echo.run_from_host(case, MUSL)


def test_no_sockets(case):
    libc_echo.run_hello(case, MUSL)


def test_overrides(case):
    libc_echo.run_overrides(case, MUSL)


def test_calls_before_the_constructor(case):
    """musl runs constructors of preloaded libraries in the order of the list."""
    libc_echo.run_early(case, MUSL, lambda ours, early: [early, ours])
