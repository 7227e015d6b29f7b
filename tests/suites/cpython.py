"""The tests of CPython's own standard library that use sockets, processes and signals.

Debian's package libpython3.11-testsuite, run by Debian's Python. Every test method is compared with the same method
without Sidestep: it may not fail, be skipped or get lost where it passes there.
"""

import re
import subprocess
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from suites import cpython_lists, ways
from testkit.failure import check

PYTHON = "/usr/bin/python3.11"
TESTS = Path("/usr/lib/python3.11/test")
SECONDS = 200
AGAIN_SECONDS = 120
# No test is silent for so long; one that is has got stuck.
QUIET_SECONDS = 90
# A module that hangs or dies is run again without the test that did it, so that the others are heard.
ROUNDS = 4
AGAIN = 2
# So many tests of a module are run again alone; if more fail, it is not for chance.
AGAIN_TESTS = 20
RANK = ("passed", "skipped", "failed")


class Module:
    """One test module. `seconds`: its time bound; `ring`: so many bytes must go by ring when all
    connections are upgraded, and some of them when they switch.

    `uses`: resources, in the words of Python's test runner, without which it does nothing.
    """

    def __init__(self, name, ring=0, quick=False, seconds=SECONDS, uses=None):
        self.name, self.ring, self.quick, self.seconds, self.uses = name, ring, quick, seconds, uses


MODULES = (
    Module("test_socket", ring=10_000_000),
    Module("test_select", quick=True),
    Module("test_poll"),
    Module("test_epoll", quick=True),
    Module("test_selectors"),
    Module("test_asyncio", ring=50_000_000, seconds=500),
    Module("test_socketserver", ring=2_000_000, quick=True, uses="network"),  # its servers and clients are on 127.0.0.1 all the same
    Module("test_ssl", ring=100_000),
    Module("test_httplib", ring=50_000_000, quick=True),
    Module("test_httpservers", ring=5_000, quick=True),
    Module("test_urllib2_localnet", ring=10_000, quick=True),
    Module("test_xmlrpc", ring=10_000),
    Module("test_ftplib", ring=300_000),
    Module("test_smtplib", ring=5_000, quick=True),
    Module("test_wsgiref", ring=2_000_000, quick=True),
    Module("test_subprocess"),
    Module("test_multiprocessing_fork", ring=20_000, seconds=900),
    Module("test_multiprocessing_spawn", ring=20_000, seconds=900),
    Module("test_multiprocessing_forkserver", ring=20_000, seconds=900),
    Module("test_threading"),
    Module("test_signal"),
    Module("test_os"),
)


def version():
    return subprocess.run([PYTHON, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def run(tally, options, make_way):
    """All modules in all ways."""
    check((TESTS / "test_socket.py").exists(),
          "CPython's tests are not installed (libpython3.11-testsuite): run tools/install-deps compat")
    chosen = [m for m in MODULES if options.wants(m.name) and (m.quick or not options.quick)]
    if not chosen:
        return
    plain = make_way(ways.PLAIN)
    layered = [make_way(name) for name in ways.LAYERED]
    for module in chosen:
        compare(tally, module, plain, layered)
    tally.begin("")
    for way in layered:
        left = way.end()
        tally.check(not left, "what is left", way.name, "; ".join(left))


def compare(tally, module, plain, layered):
    tally.begin(module.name)
    base = Verdicts(module, plain)
    for text in base.troubles:
        tally.fail(module.name, plain.name, text)
    tally.note(f"{module.name} [{plain.name}] {base.summary()}")
    base.count(tally)
    for name in (name for name, verdict in base.found.items() if verdict == "failed"):
        tally.baseline_fails(name)
    tally.check("passed" in base.found.values(), module.name, plain.name, "no test passes")
    tell_skips(tally, module, base)
    for way in layered:
        now = Verdicts(module, way)
        tally.note(f"{module.name} [{way.name}] {now.summary()}")
        now.count(tally)
        tally.check(not now.left, module.name, way.name, f"processes left: {now.left}")
        least = module.ring if way.name == ways.UPGRADED else min(module.ring, 1)
        tally.check(now.ring >= least, module.name, way.name, f"{now.ring:,} bytes by ring, at least {least:,} must")
        worse = [name for name, verdict in base.found.items() if is_worse(verdict, now.found.get(name))]
        worse += [name for name, verdict in now.found.items() if name not in base.found and verdict == "failed"]
        tally.ok(len(base.found) - sum(name in base.found for name in worse))
        for name in set(worse) & cpython_lists.EXCUSED.keys():
            tally.excuse(name, way.name, cpython_lists.EXCUSED[name])
            worse.remove(name)
        for number, name in enumerate(worse):
            what = f"{base.found.get(name)} without Sidestep, {now.found.get(name, 'lost')} with it"
            again(tally, module, name, (plain, way), what, now.said(name), number < AGAIN_TESTS)


def tell_skips(tally, module, base):
    """A skip is excused by a reason that is listed, in the test's own words."""
    for reason, count in sorted(Counter(base.skips.values()).items()):
        if any(re.search(pattern, reason) for pattern in cpython_lists.SKIPS):
            tally.skip(reason, count)
        else:
            names = [name for name, why in base.skips.items() if why == reason]
            tally.fail(module.name, base.way.name, f"skipped for a reason that is not listed: {reason}: {names[:5]}")


def is_worse(plain, now):
    """Whether a test does worse than without Sidestep, of which the verdict `plain` is."""
    return now is None and plain != "failed" or now is not None and RANK.index(now) > RANK.index(plain)


def again(tally, module, name, two_ways, what, said, repeat):
    """A test that fails only under Sidestep, alone, in both ways: was it chance?"""
    plain, way = two_ways
    for _ in range(AGAIN if repeat else 0):
        verdicts = [Verdicts(module, w, only=name).found.get(name) for w in (plain, way)]
        if not is_worse(*(v or "failed" for v in verdicts)):
            tally.shaky(name, way.name, f"{what}; alone {verdicts[0]} without, {verdicts[1]} with it\n{said}")
            return
    tally.fail(name, way.name, f"{what}\n{said}")


class Verdicts:
    """What each test of a module came to in one way."""

    def __init__(self, module, way, only=None):
        self.module, self.way, self.only = module, way, only
        self.found, self.troubles, self.left = {}, [], []
        self.skips = {}
        self.ring, self.text = 0, ""
        avoid = list(cpython_lists.NOT_RUN)
        for _ in range(1 if only else ROUNDS):
            culprit = self._round(avoid)
            if culprit is None:
                return
            self.found[culprit] = "failed"
            avoid.append(culprit)

    def _round(self, avoid):
        """Runs the module once. Returns the test that kept it from ending, if there was one."""
        seconds = AGAIN_SECONDS if self.only else self.module.seconds
        results = self.way.tmp / f"{self.way.runs}.xml"
        command = [PYTHON, "-m", "test", "-v", "--junit-xml", str(results), "--timeout", str(seconds)]
        command += ["-u", self.module.uses] if self.module.uses else []
        command += ["-m", self.only] if self.only else []
        for pattern in avoid:
            command += ["-i", pattern]
        outcome = self.way.run([*command, self.module.name], seconds + 20, QUIET_SECONDS)
        self.text += outcome.output
        self.left += outcome.left
        self.ring += outcome.report.ring
        if results.exists() and outcome.code is not None:
            self._read(results)
            return None
        culprit = unfinished(outcome.output)
        self.troubles.append(f"did not end ({describe(outcome.code)}) in {culprit or 'no test that we know'}")
        return culprit

    def _read(self, results):
        for case in ElementTree.parse(results).iter("testcase"):
            kinds = {child.tag for child in case}
            verdict = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            name = case.get("name").split(" ")[0]  # without a subtest's parameters
            self.found[name] = max(verdict, self.found.get(name, "passed"), key=RANK.index)
            if verdict == "skipped":
                self.skips[name] = (case.findtext("skipped") or "no reason").strip()

    def counts(self):
        return {rank: sum(v == rank for v in self.found.values()) for rank in RANK}

    def count(self, tally):
        tally.count(self.way.name, ring=self.ring, **self.counts())

    def summary(self):
        counts = self.counts()
        ended = "".join(f"; {trouble}" for trouble in self.troubles)
        return ", ".join(f"{n} {rank}" for rank, n in counts.items()) + f", {self.ring:,} bytes by ring{ended}"

    def said(self, name):
        """The traceback of a failed test."""
        short = name.rpartition(".")[2]
        pattern = rf"^(?:ERROR|FAIL): {re.escape(short)} \(.*?\n(?=\n*(?:=====|-----\n*Ran |Ran ))"
        found = re.search(pattern, self.text, re.MULTILINE | re.DOTALL)
        return found[0].strip() if found else "\n".join(self.troubles)


def unfinished(output):
    """The test that was running at the end of a log."""
    started = re.findall(r"^\w+ \(([\w.]+)\)(?:\n[^\n]*?)? \.\.\. (?!ok$|skipped |FAIL$|ERROR$|expected failure$)",
                         output, re.MULTILINE)
    return started[-1] if started else None


def describe(code):
    return "time is up" if code is None else f"exit code {code}"
