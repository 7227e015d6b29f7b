"""rsync and its daemon: trees in both directions, changes of them, several clients at once, a client that is killed.

Whoever receives forks into two processes that use the connection together, one for each direction: such connections
return to the kernel when that happens.
"""

import signal

from apps.support import files, trees, versions
from apps.support.marks import slow
from testkit import net, paths, wait
from testkit.failure import check

CLIENTS = 4

CONFIG = """
use chroot = no
munge symlinks = no
address = {host}
port = {port}
pid file = {tmp}/rsyncd.pid
lock file = {tmp}/rsyncd.lock
log file = {tmp}/rsyncd.log
{user}
[kept]
path = {kept}
read only = no
"""

# Only root may choose a user, and the default would be another one than the client's.
ROOT = "uid = 0\ngid = 0\n"


def version():
    return versions.of(r"version (\S+)", paths.program("rsync"), "--version")


class Daemon:
    """The daemon with one module, the directory `kept`."""

    def __init__(self, case):
        self.case = case
        self.port = net.free_port()
        self.source, self.kept = case.tmp / "source", case.tmp / "kept"
        self.kept.mkdir()
        trees.make(self.source)
        config = case.tmp / "rsyncd.conf"
        config.write_text(CONFIG.format(host=net.LOOPBACK, port=self.port, tmp=case.tmp, kept=self.kept,
                                        user=ROOT if self.case.tmp.owner() == "root" else ""))
        self.process = case.start("rsync-daemon", [
            paths.program("rsync"), "--daemon", "--no-detach", f"--config={config}"])
        net.wait_port(self.port, self.process)
        case.expect_ring("rsync", "rsync-daemon")

    def url(self, path=""):
        return f"rsync://{net.LOOPBACK}:{self.port}/kept/{path}"

    def command(self, source, target, *options):
        return [paths.program("rsync"), "-aH", "--timeout=30", *options, f"{source}/", target]

    def push(self, source, path="", *options):
        self.case.run("rsync", self.command(source, self.url(path), *options), seconds=60)

    def pull(self, target, path="", *options):
        self.case.run("rsync", self.command(self.url(path).rstrip("/"), target, *options), seconds=60)


def check_same(one, other):
    found = trees.differences(one, other)
    check(not found, f"{one.name} and {other.name} differ at {found}")
    check(len(trees.listing(one)) > trees.SMALL_FILES // 2, f"{one.name} is not the tree that it should be")


@slow(60)
def test_push_and_pull(case):
    """A tree is sent to the daemon and fetched from it again; both copies are the tree, to the mode and the time."""
    daemon = Daemon(case)
    daemon.push(daemon.source)
    check_same(daemon.source, daemon.kept)
    daemon.pull(case.tmp / "fetched")
    check_same(daemon.source, case.tmp / "fetched")


@slow(60)
def test_changes_only(case):
    """A changed tree is sent and fetched once more: parts of files, compressed, new files, files that are gone."""
    daemon = Daemon(case)
    fetched = case.tmp / "fetched"
    daemon.push(daemon.source)
    daemon.pull(fetched)
    trees.change(daemon.source)
    daemon.push(daemon.source, "", "--delete", "--checksum", "-z")
    check_same(daemon.source, daemon.kept)
    daemon.pull(fetched, "", "--delete", "--checksum", "-z")
    check_same(daemon.source, fetched)


@slow(90)
def test_clients_at_once(case):
    """Four clients send their copies at the same time, then four fetch them."""
    daemon = Daemon(case)
    for command in ([daemon.command(daemon.source, daemon.url(f"c{n}")) for n in range(CLIENTS)],
                    [daemon.command(daemon.url(f"c{n}"), case.tmp / f"t{n}") for n in range(CLIENTS)]):
        for process in [case.start("rsync", argv) for argv in command]:
            process.wait(60)
    for number in range(CLIENTS):
        check_same(daemon.source, daemon.kept / f"c{number}")
        check_same(daemon.source, case.tmp / f"t{number}")


@slow(60)
def test_killed_client(case):
    """A client is killed in the middle of a slow transfer; the daemon cleans up and serves the next one."""
    daemon = Daemon(case)
    large = case.tmp / "large"
    large.mkdir()
    (large / "file").write_bytes(files.content(8 * 1024 * 1024))
    client = case.start("rsync", daemon.command(large, daemon.url("half"), "--bwlimit=1000"))
    half = daemon.kept / "half"
    wait.until(lambda: any(path.stat().st_size > 300_000 for path in half.glob(".file.*")), "a part of the file", 20,
               client.must_run)
    client.popen.kill()
    client.wait(10, {-signal.SIGKILL})
    wait.until(lambda: not list(half.glob(".file.*")), "the daemon to remove the unfinished file", 20,
               daemon.process.must_run)
    daemon.push(daemon.source, "whole")
    check_same(daemon.source, daemon.kept / "whole")
