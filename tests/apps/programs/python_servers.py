"""gunicorn (two workers, threads, reload by SIGHUP) and uvicorn (asyncio and uvloop): every body compared."""

import os
import signal
import sys

from apps.support import files, pypi, versions
from apps.support.marks import slow
from testkit import net, paths, procfs, wait
from testkit.failure import check

WORKERS = 2


def version():
    gunicorn, uvicorn = (versions.of(r"(\d+\.\d+\.\d+)", pypi.program(name), "--version")
                         for name in ("gunicorn", "uvicorn"))
    return f"gunicorn {gunicorn}, uvicorn {uvicorn}"


class Server:
    """A server of the web service in peers/web_app.py with a directory of test files."""

    def __init__(self, case, role, *options):
        self.case, self.role = case, role
        self.port = net.free_port()
        self.site = case.tmp / "site"
        self.site.mkdir()
        files.make(self.site)
        self.process = case.start(role, [pypi.program(role), *options, *self.place()], cwd=paths.PEERS,
                                  env={"SITE": str(self.site), "PYTHONDONTWRITEBYTECODE": "1"},
                                  # uvicorn sends itself the SIGTERM once more in the end, and so writes no report
                                  stop_signal=signal.SIGINT if role == "uvicorn" else signal.SIGTERM)
        net.wait_port(self.port, self.process, 30)

    def place(self):
        if self.role == "gunicorn":
            return ["--bind", f"{net.LOOPBACK}:{self.port}", "web_app:wsgi"]
        return ["--host", net.LOOPBACK, "--port", str(self.port), "web_app:asgi"]

    def check_bodies(self):
        """Posts that come back over kept connections, and one download of each file."""
        client = [sys.executable, self.case.peer("post_check.py"), "--port", self.port]
        result = self.case.run_json("client", client)
        check(result["bodies"] > 0 and not result["wrong"], f"bodies came back changed: {result}")
        for name in sorted(path.name for path in self.site.iterdir()):
            got = self.case.tmp / f"got.{name}"
            got.write_bytes(b"")
            self.case.run("client", [paths.program("curl"), "-sS", "--fail", "-o", got, f"{self.url()}{name}"])
            check(got.read_bytes() == (self.site / name).read_bytes(), f"/{name}: body differs")

    def url(self):
        return f"http://{net.LOOPBACK}:{self.port}/"

    def reload(self):
        """SIGHUP to the master, and waits until there are new workers and no old ones."""
        master = self.process.pid
        old = procfs.children(master)
        os.kill(master, signal.SIGHUP)
        wait.until(lambda: len(procfs.children(master) - old) >= WORKERS and not procfs.children(master) & old,
                   "new gunicorn workers only", 30, self.process.must_run)


@slow(90)
def test_gunicorn(case):
    """gunicorn with two workers of four threads, which keep connections."""
    case.expect_ring("gunicorn", "client")
    Server(case, "gunicorn", "-w", WORKERS, "-k", "gthread", "--threads", 4, "--keep-alive", 30).check_bodies()


@slow(90)
def test_gunicorn_reload(case):
    """All workers are replaced three times by SIGHUP, and the new ones answer as the old ones did."""
    case.expect_seen("gunicorn", "client")
    server = Server(case, "gunicorn", "-w", WORKERS)
    for _ in range(3):
        server.check_bodies()
        server.reload()
    server.check_bodies()


def uvicorn(case, loop, protocol):
    Server(case, "uvicorn", "--loop", loop, "--http", protocol, "--timeout-keep-alive", 30).check_bodies()


@slow(60)
def test_uvicorn_asyncio(case):
    """uvicorn with Python's own event loop and parser."""
    case.expect_ring("uvicorn", "client")
    uvicorn(case, "asyncio", "h11")


@slow(60)
def test_uvicorn_uvloop(case):
    """uvicorn with uvloop (libuv, which changes its epoll sets by io_uring) and httptools."""
    case.expect_ring("uvicorn", "client")
    uvicorn(case, "uvloop", "httptools")
