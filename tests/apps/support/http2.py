"""curl as an HTTP/2 client without TLS: many bodies at once, each compared.

Each transfer has a connection of its own, all opened at once: the curl of Debian 12 cannot use one a second time that
speaks HTTP/2 without TLS.
"""

from testkit import paths
from testkit.failure import check


def check_bodies(case, port, site, names, rounds=3, role="curl"):
    """Fetches every file several times, all at once; every body must be the file."""
    for _ in range(rounds):
        fetch_all(case, port, site, names, role)


def fetch_all(case, port, site, names, role):
    argv = [paths.program("curl"), "-sS", "--fail", "--http2-prior-knowledge", "--parallel", "--parallel-immediate",
            "--parallel-max", len(names), "--write-out", "version=%{http_version}\\n"]
    outputs = {name: case.tmp / f"{role}.{name}" for name in names}
    for name, output in outputs.items():
        argv += ["-o", output, f"http://127.0.0.1:{port}/{name}"]
    by_http2 = case.run(role, argv, seconds=60).count("version=2")
    check(by_http2 == len(names), f"{by_http2} answers by HTTP/2, not {len(names)}")
    for name, output in outputs.items():
        body = output.read_bytes() if output.exists() else b""  # curl creates no file for an empty body
        check(body == (site / name).read_bytes(), f"/{name}: body differs ({len(body)} bytes)")
        output.unlink(missing_ok=True)
