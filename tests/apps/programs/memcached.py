"""memcached (libevent, a socket passed to a worker thread, sendmsg): values of many sizes, byte for byte."""

import sys

from apps.support import versions
from testkit import net, paths
from testkit.failure import check


def version():
    return versions.of(r"memcached (\S+)", paths.program("memcached"), "--version")


def test_values(case):
    case.expect_ring("client", "memcached", share=0.5)
    port = net.free_port()
    server = case.start("memcached", [paths.program("memcached"), "-l", "127.0.0.1", "-p", port, "-U", 0, "-t", 2,
                                      "-m", 64, "-u", "root"])
    net.wait_port(port, server)
    result = case.run_json("client", [sys.executable, case.peer("memcached_check.py"), "--port", str(port)])
    check(result["values"] > 0, f"no value was checked: {result}")
