"""curl against nginx: many requests over one kept connection, downloads and uploads, every body compared."""

from apps.support import files, versions
from apps.support.nginx import Nginx
from testkit import paths
from testkit.failure import check

ROUNDS = 3


def version():
    return versions.of(r"curl (\S+)", paths.program("curl"), "--version")


def fetch(case, urls, extra=()):
    """One curl invocation for all URLs; returns the bodies and how many connections curl made."""
    argv = [paths.program("curl"), "-sS", "--fail", "--write-out", "connects=%{num_connects}\\n", *extra]
    outputs = [case.tmp / f"body{number}" for number in range(len(urls))]
    for url, output in zip(urls, outputs):
        argv += ["-o", output, url]
    lines = case.run("curl", argv).splitlines()
    connects = sum(int(line.partition("=")[2]) for line in lines if line.startswith("connects="))
    # curl creates no file for an empty body
    return [output.read_bytes() if output.exists() else b"" for output in outputs], connects


def test_keepalive_downloads(case):
    case.expect_ring("curl", "nginx")
    server = Nginx(case)
    names = server.names * ROUNDS
    bodies, connects = fetch(case, [server.url(name) for name in names])
    for name, body in zip(names, bodies):
        check(body == (server.site / name).read_bytes(), f"/{name}: body differs ({len(body)} bytes)")
    check(connects == 1, f"curl made {connects} connections, not one kept connection")


def test_parallel_downloads(case):
    case.expect_ring("curl", "nginx")
    server = Nginx(case)
    names = server.names * ROUNDS
    bodies, _ = fetch(case, [server.url(name) for name in names], ["--parallel", "--parallel-max", "8"])
    for name, body in zip(names, bodies):
        check(body == (server.site / name).read_bytes(), f"/{name}: body differs ({len(body)} bytes)")


def upload(case, server, method, path):
    """Sends a body of each size in one invocation and compares what the server stored."""
    argv = [paths.program("curl"), "-sS", "--fail"]
    for number, size in enumerate(files.SIZES):
        source = case.tmp / f"upload{size}"
        source.write_bytes(files.content(size, seed=1))
        body = ["--data-binary", f"@{source}", "-H", "Expect:"] if method == "POST" else ["--upload-file", source]
        argv += (["--next", "-sS", "--fail"] if number else []) + [*body, server.url(f"{path}/u{size}")]
    case.run("curl", argv)
    for size in files.SIZES:
        stored = (server.uploads / f"u{size}").read_bytes()
        check(stored == files.content(size, seed=1), f"{method} of {size} bytes: nginx stored {len(stored)} others")


def test_put_upload(case):
    case.expect_ring("curl", "nginx")
    upload(case, Nginx(case), "PUT", "up")


def test_post_upload(case):
    case.expect_ring("curl", "nginx")
    upload(case, Nginx(case), "POST", "post")
