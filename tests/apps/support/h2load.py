"""h2load of nghttp2 with its counters made readable: an exact number of requests, and exactly their bytes."""

import re

from apps.support import versions
from testkit import paths
from testkit.failure import check


def version():
    return versions.of(r"nghttp2/(\S+)", paths.program("h2load"), "--version")


def start(case, url, requests, *options, clients=8, threads=2, role="h2load"):
    """Starts h2load in the background. Its default is HTTP/2 without TLS, to which it does not negotiate."""
    return case.start(role, [paths.program("h2load"), "-n", requests, "-c", clients, "-t", threads, *options, url])


def check_result(process, requests, body_bytes, seconds=60.0):
    """Waits for h2load's end: every request must have succeeded, and the bodies must add up to the byte."""
    process.wait(seconds)
    text = process.output()
    counts = re.search(r"requests: (\d+) total, (\d+) started, (\d+) done, (\d+) succeeded, (\d+) failed, "
                       r"(\d+) errored, (\d+) timeout", text)
    data = re.search(r"\((\d+)\) data", text)
    check(counts and data, f"h2load printed no result:\n{process.tail()}")
    wanted = [requests] * 4 + [0] * 3
    check([int(number) for number in counts.groups()] == wanted, f"h2load: {counts.group(0)}")
    check(int(data.group(1)) == requests * body_bytes,
          f"h2load received {data.group(1)} bytes of bodies, not {requests} times {body_bytes}")


def run(case, url, requests, body_bytes, *options, **settings):
    check_result(start(case, url, requests, *options, **settings), requests, body_bytes)
