"""The project's own socket cases in builds with AddressSanitizer and ThreadSanitizer.

The runtimes of the sanitizers intercept the same calls of libc as the library does, and stop a program that reads or
writes where it must not: a byte that the library puts beside the program's buffer is seen. The library itself is the
one of the release build. Needs a nightly toolchain of Rust.
"""

import json
import os
import subprocess

from support import paths
from support.failure import Failure, check

TARGET = "x86_64-unknown-linux-gnu"
BUILDS = {
    "address": "-Zsanitizer=address",
    # The standard library is not instrumented, which the compiler wants to be told.
    "thread": "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
}
MODES = ("plain", "upgraded", "flip")
BUILD_SECONDS = 600
RUN_SECONDS = 1800
# A case takes several times as long as without a sanitizer.
CASE_SECONDS = 60
QUICK_FILTER = "stream.both_ways"


def version():
    return subprocess.run(["rustc", "+nightly", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def run(tally, options, _make_way):
    """Every case in every way; what fails without Sidestep too is excused."""
    wanted = QUICK_FILTER if options.quick else ""
    for kind, flags in BUILDS.items():
        if options.filter in f"sanitizer.{kind}":
            binaries = build(kind, flags)
            compare(tally, kind, {mode: cases(binaries, mode, wanted) for mode in MODES})


def build(kind, flags):
    directory = paths.TARGET / f"sanitizer-{kind}"
    environment = {**os.environ, "RUSTFLAGS": flags, "CARGO_TARGET_DIR": str(directory)}
    command = ["cargo", "+nightly", "build", "--target", TARGET, "-p", "sidestep-posix"]
    done = subprocess.run(command, cwd=paths.ROOT, env=environment, capture_output=True, text=True,
                          timeout=BUILD_SECONDS)
    check(done.returncode == 0, f"no build with the {kind} sanitizer: {done.stderr[-600:]}")
    return directory / TARGET / "debug"


def cases(binaries, mode, wanted):
    """What each case came to: None, or what was wrong."""
    command = [binaries / "posix-run", "--mode", mode, "--json", "--again", "--deadline", str(CASE_SECONDS),
               "--sidestep", paths.TARGET / "release" / "sidestep"]
    if wanted:
        command += ["--filter", wanted]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=RUN_SECONDS)
    found = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)
    if found is None:
        raise Failure(f"posix-run [{mode}] says nothing: {done.stderr[-600:]}")
    return {case["name"]: case["failure"] for case in json.loads(found)["cases"]}


def compare(tally, kind, by_mode):
    plain = by_mode["plain"]
    check(any(failure is None for failure in plain.values()), f"no case passes under the {kind} sanitizer")
    for mode in MODES[1:]:
        for name, failure in by_mode[mode].items():
            excused = plain.get(name) is not None
            tally.check(excused or failure is None, f"{kind} {name}", mode, failure)
        tally.note(f"{kind} sanitizer [{mode}]: {len(by_mode[mode])} cases, "
                   f"{sum(f is not None for f in by_mode[mode].values())} fail, "
                   f"{sum(f is not None for f in plain.values())} without Sidestep")
