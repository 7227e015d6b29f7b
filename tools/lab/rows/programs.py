"""Two small processes and one connection: ping-pong, stream, file transfers; and new connections."""

import contextlib

from ..variant import NO_SPIN, PINNED, PLAIN, SIDESTEP
from .base import Cell, Metric, Row, Sample, at_least, within

KB, MB = 1000, 1000 * 1000


class PingPong(Row):
    name = "pingpong"
    about = "64-byte ping-pong between two processes"
    targets = "epoll, spin auto: within 3x of the spin limit; never slower than the kernel without spinning"
    variants = (PLAIN, PINNED, SIDESTEP, NO_SPIN)

    def cells(self):
        return [
            self.cell("epoll", within(3, "limit_us", "3x spin limit")),
            self.cell("blocking", at_least(1.0)),
        ]

    def cell(self, mode, goal):
        goals = {"sidestep": goal, "nospin": at_least(1.0)}
        metric = Metric("p50_us", "round trip, us", "lower", goals)
        return Cell(f"64-byte ping-pong, {mode}", (metric,), lambda variant: self.measure(variant, mode))

    def measure(self, variant, mode):
        seconds = ("--seconds", str(self.plan.program_seconds))
        _, values, traffic = self.programs().pair(
            variant, "pingpong", server=("--mode", mode), client=("--mode", mode, *seconds)
        )
        if variant == PLAIN:  # what the machine itself can do, taken at the same time
            values["limit_us"] = self.programs().single(PLAIN, "spinlimit", *seconds)["p50_us"]
        return Sample(values, traffic)


class Stream(Row):
    name = "stream"
    about = "one stream between two processes"
    targets = "1 KiB writes 8x, 128 KiB writes 3x"

    def cells(self):
        return [self.cell(1, 8), self.cell(128, 3)]

    def cell(self, kib, times):
        metric = Metric("gb_per_s", "GB/s", "higher", {"sidestep": at_least(times)})
        return Cell(f"stream, {kib} KiB writes", (metric,), lambda variant: self.measure(variant, kib))

    def measure(self, variant, kib):
        client = ("--write", str(kib * 1024), "--seconds", str(self.plan.program_seconds))
        values, _, traffic = self.programs().pair(variant, "stream", client=client)
        return Sample(values, traffic)


class Files(Row):
    """The published table of an older system of this kind, which lost to the kernel at 10 MB."""

    name = "files"
    about = "a file from a server: 700 B, 100 KB, 10 MB; buffers 2^16, 2^24; idle and beside a stream"
    targets = "faster in every cell"

    def prepare(self):
        self.files = {}
        for size, title in ((700, "700 B"), (100 * KB, "100 KB"), (10 * MB, "10 MB")):
            path = self.lab.folder / f"file-{size}"
            path.write_bytes(bytes(range(250)) * (size // 250 + 1))
            with open(path, "r+b") as file:
                file.truncate(size)
            self.files[size] = (path, title)

    def cells(self):
        return [
            self.cell(size, power, beside)
            for beside in ("idle", "beside 5 MB/s")
            for power in (16, 24)
            for size in self.files
        ]

    def cell(self, size, power, beside):
        path, title = self.files[size]
        metric = Metric("p50_us", "transfer, us", "lower", {"sidestep": at_least(1.0, "faster")})
        return Cell(
            f"file {title}, buffers 2^{power}, {beside}",
            (metric,),
            lambda variant: self.measure(variant, path, size, 2**power),
            contextlib.nullcontext if beside == "idle" else self.background,
        )

    def measure(self, variant, path, size, sockbuf):
        buffers = ("--sockbuf", str(sockbuf))
        client = ("--size", str(size), "--seconds", str(self.plan.file_seconds), *buffers)
        _, values, traffic = self.programs().pair(variant, "files", ("--file", path, *buffers), client)
        return Sample(values, traffic)

    @contextlib.contextmanager
    def background(self):
        """A paced stream on the kernel, the same beside every variant; it outlasts the cell."""
        rate = self.plan.background_bytes_per_second
        client = ("--write", "8192", "--rate", str(rate), "--seconds", "3600")
        with self.programs().open_pair(PLAIN, "stream", (), client, None) as ends:
            yield
            for end in ends:
                if end.poll() is not None:
                    self.lab.fail(end, f"the background stream ended early with {end.returncode}")


class Connect(Row):
    name = "connect"
    about = "new connections, one request each"
    targets = "connections/s 0.95x"
    variants = (PLAIN, PINNED, SIDESTEP)
    needs_ring = False  # they are too short, and must be left alone

    def cells(self):
        metric = Metric("conns_per_s", "connections/s", "higher", {"sidestep": at_least(0.95)})
        return [Cell(self.about, (metric,), self.measure)]

    def measure(self, variant):
        count = ("--conns", str(self.plan.new_connections))
        _, values, traffic = self.programs().pair(variant, "connect", count, count)
        return Sample(values, traffic)


class NotOurs(Row):
    name = "notours"
    about = "calls on descriptors that are no TCP connection"
    targets = "under 3 % dearer"
    variants = (PLAIN, SIDESTEP)
    needs_ring = False

    def cells(self):
        titles = {"pipe": "pipe", "file": "file", "unix": "unix socket", "udp": "UDP", "epoll": "epoll_wait"}
        goals = {"sidestep": at_least(1 / 1.03, "under +3 %")}
        metrics = tuple(
            Metric(f"{key}_ns", f"{title}, ns a call", "lower", goals) for key, title in titles.items()
        )
        return [Cell("calls not ours", metrics, self.measure)]

    def rounds(self):
        return self.plan.pairs * self.plan.notours_rounds_a_pair

    def measure(self, variant):
        return Sample(self.programs().single(variant, "notours", "--seconds", str(self.plan.notours_seconds)))
