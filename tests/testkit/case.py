"""What one test gets: a temporary directory, programs to start, and expectations of their reports."""

import contextlib
import json
import shutil
import tempfile
from pathlib import Path

from testkit import paths, procfs, sidestep, wait
from testkit.failure import Failure, check
from testkit.process import Process, describe_end
from testkit.report import Report


class Case:
    """One run of one test, plain (`layer` is None) or under Sidestep."""

    def __init__(self, name, layer=None):
        self.name = name
        self.layer = layer
        self.tmp = Path(tempfile.mkdtemp(prefix="sidestep-app-"))
        self.tmp.chmod(0o755)  # servers that drop root must be able to look in
        self.processes = []
        self.endings = []
        self.expected_ring = {}
        self.expected_kernel = set()
        self.expected_seen = set()
        self.expected_untouched = set()
        self.expected_unused = set()

    # --- programs -----------------------------------------------------------------------------

    def start(self, role, argv, preload=True, wrap=(), env=None, **options):
        """Starts a program in the background. `wrap` goes before everything, as `setpriv …` must."""
        argv = list(argv)
        base = sidestep.plain_env()
        if self.layer is not None and preload:
            argv = self.layer.command(argv, self.report_path(role))
            base = self.layer.env()
        log = self.tmp / f"{role}.{len(self.processes)}.log"
        process = Process(role, [*wrap, *argv], log, {**base, **(env or {})}, **options)
        self.processes.append(process)
        return process

    def run(self, role, argv, seconds=30.0, **options):
        """Runs a program to its end, which must be a good one, and returns what it printed."""
        process = self.start(role, argv, **options)
        process.wait(seconds)
        return process.output()

    def run_json(self, role, argv, **options):
        """The same for a client that ends with one line of JSON."""
        text = self.run(role, argv, **options).strip()
        try:
            return json.loads(text.splitlines()[-1])
        except (IndexError, ValueError):
            raise Failure(f"{role} did not end with a line of JSON: {text[-500:]!r}") from None

    def peer(self, name):
        return str(paths.PEERS / name)

    def at_end(self, function):
        """Something to call at the end for what `start` cannot see; it may be called twice."""
        self.endings.append(function)

    def ended_by_themselves(self):
        """Other programs that have failed, which may be why the test did."""
        failed = [process for process in self.processes if not process.ended and process.popen.poll()]
        return "".join(f"\n{process.role} has ended ({describe_end(process.popen.poll())}):\n{process.tail()}" for process in failed)

    # --- expectations -------------------------------------------------------------------------

    def report_path(self, role):
        return self.tmp / f"{role}.report"

    def expect_ring(self, *roles, share=0.0):
        """After the end, the processes of each role must have upgraded and moved bytes by ring.

        `share` is the least part of all their bytes that must have gone by ring.
        """
        for role in roles:
            self.expected_ring[role] = share

    def expect_kernel(self, *roles):
        """After the end, these must have seen connections, and nothing of them must have gone by ring."""
        self.expected_kernel.update(roles)

    def expect_seen(self, *roles):
        """The library must be in these programs and see connections; by which carrier they go is free."""
        self.expected_seen.update(roles)

    def expect_untouched(self, *roles):
        """The library must not have got into these programs at all: they write no report."""
        self.expected_untouched.update(roles)

    def expect_unused(self, *roles):
        """The library must be in these programs, which write a report, and see no connection."""
        self.expected_unused.update(roles)

    def finish(self):
        """Stops what still runs, newest first, and then looks at the reports."""
        for ending in self.endings:
            ending()
        for process in reversed(self.processes):
            if not process.ended:
                process.stop()
        wait.until(lambda: not procfs.users_of(self.tmp), "everything that the test started to end")
        if self.layer is None:
            return {}
        self.layer.stop_brokers()
        return self.check_reports()

    def check_reports(self):
        roles = {*self.expected_ring, *self.expected_kernel, *self.expected_seen, *self.expected_untouched,
                 *self.expected_unused}
        check(roles, "the test expects nothing of the reports")
        reports = {role: Report(self.report_path(role)) for role in roles}
        for role, share in self.expected_ring.items():
            # A stream that changes its carrier all the time spends part of it on the kernel.
            _check_ring(reports[role], 0 if self.layer.flip else share)
        for role in {*self.expected_kernel, *self.expected_seen}:
            check(reports[role].seen > 0, f"the library saw no connection: {reports[role]}")
        for role in self.expected_kernel:
            check(reports[role].ring == 0, f"bytes by ring though one end has no library: {reports[role]}")
        for role in self.expected_unused:
            check(reports[role].lines and reports[role].seen == 0, f"not a program without connections: {reports[role]}")
        for role in self.expected_untouched:
            check(not reports[role].lines, f"the library is in a program where it cannot be: {reports[role]}")
        return {role: _summary(report) for role, report in sorted(reports.items())}

    def cleanup(self, keep=False):
        """On every way out: no process and no file is left."""
        for process in reversed(self.processes):
            process.destroy()
        for ending in self.endings:
            with contextlib.suppress(Failure, OSError):
                ending()
        procfs.kill_all(lambda: procfs.users_of(self.tmp))
        if self.layer is not None:
            with contextlib.suppress(Failure):  # killed by now; the test itself has reported what counts
                self.layer.stop_brokers()
        if not keep:
            shutil.rmtree(self.tmp, ignore_errors=True)


def _check_ring(report, share):
    check(report.ring > 0, f"no byte went by ring: {report}")
    check(report.upgraded > 0, f"no connection was upgraded: {report}")
    check(report.ring >= share * (report.ring + report.kernel),
          f"less than {share:.0%} of the bytes went by ring: {report}")


def _summary(report):
    return {"seen": report.seen, "upgraded": report.upgraded, "returned": report.returned, "ring": report.ring,
            "kernel": report.kernel, "reasons": report.reasons()}
