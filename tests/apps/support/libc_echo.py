"""The echo server and client of peers/libc, in pairs of one libc or of two: what each libc has to go through."""

import re

from apps.support import echo
from apps.support.libcs import HOST
from testkit import wait
from testkit.failure import check
from testkit.report import Report

CONNECTIONS = 3


def start_server(case, libc, how, move="read", sources=("server.c",)):
    """Returns its port."""
    process = case.start("server", [libc.program(*sources), how, move])
    return int(process.wait_output(echo.LISTENING, 30).group(1))


def run_client(case, libc, how, move, port, sources=("client.c",), connections=CONNECTIONS):
    echo.run_client(case, [libc.program(*sources), how, move, port, connections])


def run(case, libc, how, move, client=None, client_waits="poll"):
    """Both ends must show bytes by ring. The client is of the same libc unless told otherwise."""
    case.expect_ring("server", "client")
    port = start_server(case, libc, how, move)
    run_client(case, client or libc, client_waits, "read" if move == "dprintf" else move, port)


def run_at_once(case, libc, clients=4):
    """Several clients at once, which make a new epoll set for each wait: readers are late, and streams end before they are read."""
    case.expect_ring("server", "client")
    port = start_server(case, libc, "threads", "messages")
    for client in [case.start("client", [libc.program("client.c"), "epoll", "messages", port, CONNECTIONS]) for _ in range(clients)]:
        client.wait(60)


def run_with_host(case, libc):
    """The client has this machine's glibc, and several connections at once."""
    case.expect_ring("server", "client", share=0.5)
    port = start_server(case, libc, "epoll", "recv")
    echo.run_client(case, echo.python_client(case, "epoll", port))


def run_from_host(case, libc):
    """The server has this machine's glibc."""
    run(case, HOST, "threads", "messages", client=libc, client_waits="threads")


def run_exec(case, libc):
    """Each connection is inherited by another program after its first byte, which may have come by ring: from then on it is
    the kernel's."""
    case.expect_seen("server", "client")
    port = start_server(case, libc, "exec")
    run_client(case, libc, "threads", "read", port)


def run_daemon(case, libc):
    """A process with a connection leaves its terminal by daemon(3), which forks inside of libc."""
    case.expect_ring("both")
    process = case.start("both", [libc.program("daemon.c")])
    process.wait(10)
    wait.until(lambda: '{"connections": 2,' in process.output(), "the daemon to end well")
    if case.layer is not None:
        path = case.report_path("both")
        wait.until(lambda: Report(path).lines, "the daemon's report")
        # A child counts from zero. It does so only if libc has told the library of the fork.
        check(Report(path).seen == 2, f"not the two ends that the child has made: {Report(path)}")


def run_cancel(case, libc):
    """Threads are cancelled in calls on a connection, which goes on working."""
    case.expect_ring("both")
    echo.run_client(case, [libc.program("cancel.c")], role="both")


def run_pass(case, libc):
    """A connection with unread bytes is passed to another process by SCM_RIGHTS."""
    case.expect_ring("both")
    echo.run_client(case, [libc.program("pass.c")], role="both")


def run_overrides(case, libc):
    """Executables with functions of libc's names of their own, which call the next ones."""
    case.expect_ring("server", "client")
    port = start_server(case, libc, "epoll", "recv", sources=("server.c", "overrides.c"))
    run_client(case, libc, "select", "vectors", port, sources=("client.c", "overrides.c"))


def run_hello(case, libc):
    """A program that has nothing to do with sockets ends as it does without the library, which was in it."""
    case.expect_unused("hello")
    process = case.start("hello", [libc.program("hello.c")])
    process.wait(10, {42})
    process.wait_output(re.compile("^hello$", re.MULTILINE), 1)


def run_early(case, libc, before):
    """The constructor of another library makes calls before ours has run. `before`: the order of LD_PRELOAD with which it
    does, which differs among libcs; its connections are not followed."""
    case.expect_unused("hello")
    early = str(libc.library("early.c"))
    process = preloaded(case, "hello", [libc.program("hello.c")], lambda ours: before(ours, early), plain=early)
    process.wait(10, {42})
    process.wait_output(re.compile("^early: done$", re.MULTILINE), 1)


def run_unknown(case, libc, options, how):
    """The library cannot find out which libc it is in: it does nothing, and the program does not notice."""
    case.expect_untouched("server", "client")
    hide = str(libc.library("hide.c", options))
    order = lambda ours: [hide, ours]  # noqa: E731
    server = preloaded(case, "server", [libc.program("server.c"), how, "read"], order, plain=hide)
    port = int(server.wait_output(echo.LISTENING, 30).group(1))
    client = preloaded(case, "client", [libc.program("client.c"), "poll", "vectors", str(port), "2"], order, plain=hide)
    client.wait(30)
    lines = client.output().splitlines()
    check(len(lines) == 1 and '"connections": 2' in lines[0], f"the library is not silent: {lines}")
    early = str(libc.library("early.c", options))
    asked = preloaded(case, "client", [libc.program("hello.c")], lambda ours: [hide, ours, early], plain=f"{hide} {early}",
                      more={"SIDESTEP_LOG": "1"})
    asked.wait(10, {42})
    if case.layer is not None:  # or it was not there at all
        check("neither glibc nor musl" in asked.output(), f"the library says nothing if it is asked:\n{asked.tail()}")


def preloaded(case, role, argv, order, plain, more=None):
    """Starts a program with LD_PRELOAD set by hand: `order` makes the list, given our library; `plain` is all of it
    without Sidestep."""
    if case.layer is None:
        return case.start(role, argv, env={"LD_PRELOAD": plain})
    env = case.layer.preload_env(case.report_path(role))
    names = order(env["LD_PRELOAD"])
    return case.start(role, argv, preload=False, env={
        **env, "SIDESTEP_BROKER": case.layer.broker, "LD_PRELOAD": " ".join(names), **(more or {})})
