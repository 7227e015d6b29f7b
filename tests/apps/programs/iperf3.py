"""iperf3: several streams at once, either direction, both directions, sendfile; a file sent arrives as it was."""

import json
import re

from apps.support import files, versions
from apps.support.marks import slow
from testkit import net, paths
from testkit.failure import check

SECONDS = 2
# iperf3 itself mixes up a file's bytes after a write that was cut short, so a file must fit into the buffers.
FILE_BYTES = 120_003


def version():
    return versions.of(r"iperf (\S+)", paths.program("iperf3"), "--version")


class Server:
    def __init__(self, case, *options):
        self.case = case
        self.port = net.free_port()
        # Nobody may try the port by connecting: iperf3 would take that for a client.
        self.process = case.start("iperf3-server", [
            paths.program("iperf3"), "-s", "-B", net.LOOPBACK, "-p", self.port, "--forceflush", *options])
        self.process.wait_output(re.compile("Server listening on"))
        case.at_end(self.stop)

    def stop(self):
        """iperf3 calls its end by SIGTERM a failure."""
        if not self.process.ended:
            self.process.must_run()
            self.process.popen.terminate()
            self.process.wait(15, {1})

    def measure(self, *options):
        """Runs the client and returns what it and the server have counted."""
        text = self.case.run("iperf3-client", [
            paths.program("iperf3"), "-c", net.LOOPBACK, "-p", self.port, "--json", *options], seconds=40)
        result = json.loads(text)
        check("error" not in result, f"iperf3 says: {result.get('error')}")
        return result["end"]


def check_sums(end, streams, sums=("",)):
    """Every stream has moved bytes, and no receiver has counted more than its sender has sent.

    iperf3 ends by a message on another connection, so that what is in flight then is not counted.
    """
    counts = [stream[side]["bytes"] for stream in end["streams"] for side in ("sender", "receiver")]
    check(len(end["streams"]) == streams and all(counts), f"not {streams} streams that all moved bytes: {counts}")
    for suffix in sums:
        sent, received = end[f"sum_sent{suffix}"]["bytes"], end[f"sum_received{suffix}"]["bytes"]
        check(sent // 4 < received <= sent, f"sent {sent} bytes, received {received} (sum{suffix})")


def expect(case):
    case.expect_ring("iperf3-client", "iperf3-server", share=0.5)


@slow(60)
def test_parallel(case):
    """Four streams from the client to the server, in one thread on each side."""
    expect(case)
    check_sums(Server(case).measure("-t", SECONDS, "-P", 4), 4)


@slow(60)
def test_reverse(case):
    """Four streams from the server to the client."""
    expect(case)
    check_sums(Server(case).measure("-t", SECONDS, "-P", 4, "-R"), 4)


@slow(60)
def test_bidirectional(case):
    """Two streams each way at the same time."""
    expect(case)
    check_sums(Server(case).measure("-t", SECONDS, "-P", 2, "--bidir"), 4, ("", "_bidir_reverse"))


@slow(60)
def test_zerocopy(case):
    """The client sends by sendfile from a file, two streams."""
    expect(case)
    check_sums(Server(case).measure("-t", SECONDS, "-P", 2, "-Z"), 2)


@slow(90)
def test_small_blocks_one_after_the_other(case):
    """One server, five clients in turn, blocks of 1000 bytes: each run has connections of its own."""
    expect(case)
    server = Server(case)
    for _ in range(5):
        check_sums(server.measure("-n", "8M", "-l", 1000), 1)


@slow(60)
def test_file(case):
    """A file is sent and stored by the server: what is stored must be the file, up to what was in flight at the end."""
    expect(case)
    source, stored = case.tmp / "source", case.tmp / "stored"
    content = files.content(FILE_BYTES)
    source.write_bytes(content)
    end = Server(case, "-F", stored).measure(
        "-F", source, "-l", 1000, "-w", "200K", "-b", "10M")
    got, counted = stored.read_bytes(), end["sum_received"]["bytes"]
    check(end["sum_sent"]["bytes"] == FILE_BYTES, f"iperf3 has not sent the whole file: {end['sum_sent']}")
    check(len(got) == counted, f"the server has counted {counted} bytes and stored {len(got)}")
    check(len(got) > FILE_BYTES // 4, f"only {len(got)} of {FILE_BYTES} bytes arrived")
    check(got == content[:len(got)], "the stored bytes are not those of the file")
