"""stress-ng's stressors for sockets, readiness, descriptors and processes, with their own verification.

Each is run for some seconds, and must end well, have done something, and have left nothing behind.
"""

import re
import subprocess

from suites import ways
from testkit import paths

SECONDS, QUICK_SECONDS = 60, 2
# What a stressor needs beside its time, to start and to clean up.
SPARE_SECONDS = 60
SOCK_OPTS = ("random", "send", "sendmsg", "sendmmsg")
# Sends all that a connection carries in one call, which begins on the kernel and is not cut in two.
ONE_CALL = "sendmsg"
# Bytes, on a machine that does other things as well.
A_SECOND = 3_000_000


class Stressor:
    """One run of stress-ng. `ring`: so many bytes must go by ring in each second when all are
    upgraded, and some of them when they switch."""

    def __init__(self, name, *arguments, ring=0, quick=False, workers=1):
        self.name, self.ring, self.quick = name, ring, quick
        self.stressor = name.split("-")[0]
        self.arguments = [f"--{self.stressor}", str(workers), *arguments]


STRESSORS = (
    *(Stressor(f"sock-{domain}-{opts}", "--sock-domain", domain, "--sock-opts", opts, ring=0 if opts == ONE_CALL else A_SECOND,
               quick=(domain, opts) in {("ipv4", "random"), ("ipv6", "sendmmsg")}, workers=2)
      for domain in ("ipv4", "ipv6") for opts in SOCK_OPTS),
    Stressor("sockmany"),
    Stressor("sockabuse"),
    Stressor("sockfd", quick=True),
    Stressor("epoll-ipv4", "--epoll-domain", "ipv4", quick=True),
    Stressor("epoll-ipv6", "--epoll-domain", "ipv6"),
    Stressor("epoll-unix", "--epoll-domain", "unix"),
    Stressor("poll", workers=2),
    Stressor("dup"),
    Stressor("splice", quick=True),
    Stressor("sendfile"),
    Stressor("fork", quick=True),
    Stressor("vfork"),
    Stressor("close"),
    Stressor("rlimit"),
)


def version():
    text = subprocess.run([paths.program("stress-ng"), "--version"], capture_output=True, text=True, check=True).stdout
    return " ".join(text.split()[:3]).rstrip(",")


def run(tally, options, make_way):
    """All stressors in all ways. The quick run does without the plain one: what fails there has no excuse."""
    program = paths.program("stress-ng")
    chosen = [s for s in STRESSORS if options.wants(s.name) and (s.quick or not options.quick)]
    if not chosen:
        return
    seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    wanted = ways.LAYERED if options.quick else (ways.PLAIN, *ways.LAYERED)
    every = [make_way(name) for name in wanted]
    for stressor in chosen:
        excused = False
        tally.begin(stressor.name)
        for way in every:
            excused = one(tally, program, stressor, way, seconds, excused)
    tally.begin("")
    for way in every:
        left = way.end()
        tally.check(not left, "what is left", way.name, "; ".join(left))


def one(tally, program, stressor, way, seconds, excused):
    """Runs one stressor in one way. Returns whether what it does wrong is wrong without Sidestep too."""
    command = [program, *stressor.arguments, "--verify", "--metrics", "--timeout", str(seconds), "--oomable"]
    outcome = way.run(command, seconds + SPARE_SECONDS)
    done = operations(outcome.output, stressor.stressor)
    bad = outcome.code != 0 or done == 0 or re.search(r"\bfail:", outcome.output) is not None
    tally.note(f"{stressor.name} [{way.name}] exit code {outcome.code}, {done:,} operations, "
               f"{outcome.report.ring:,} bytes by ring")
    tally.count(way.name, passed=int(not bad), failed=int(bad), ring=outcome.report.ring)
    if way.name == ways.PLAIN:
        tally.check(done > 0, stressor.name, way.name, f"does nothing on this machine\n{tail(outcome.output)}")
        if bad:
            tally.baseline_fails(stressor.name)
            tally.note(tail(outcome.output))
        return bad
    tally.check(excused or not bad, stressor.name, way.name, f"exit code {outcome.code}\n{tail(outcome.output)}")
    tally.check(not outcome.left, stressor.name, way.name, f"processes left: {outcome.left}")
    least = stressor.ring * seconds if way.name == ways.UPGRADED else min(stressor.ring, 1)
    tally.check(outcome.report.ring >= least, stressor.name, way.name,
                f"{outcome.report.ring:,} bytes by ring, at least {least:,} must: {outcome.report}")
    return excused


def operations(output, stressor):
    """The "bogo ops" that --metrics tells."""
    found = re.search(rf"metrc: \[\d+\] {stressor} +(\d+) ", output)
    return int(found[1]) if found else 0


def tail(output):
    return "\n".join(output.splitlines()[-15:])
