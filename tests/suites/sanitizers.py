"""The project's own socket cases in builds with AddressSanitizer and ThreadSanitizer.

The runtimes of the sanitizers intercept the same calls of libc as the library does, and stop a program that reads or
writes where it must not: a byte that the library puts beside the program's buffer is seen. The library itself is the
one of the release build. Needs a nightly toolchain of Rust.
"""

import os
import subprocess
from pathlib import Path

from suites import socket_cases
from testkit import paths
from testkit.failure import check

TARGET = "x86_64-unknown-linux-gnu"
BUILDS = {
    "address": "-Zsanitizer=address",
    # The standard library is not instrumented, which the compiler wants to be told.
    "thread": "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
}
BUILD_SECONDS = 900
# A case takes several times as long as without a sanitizer.
OPTIONS = ("--deadline", "60", "--slow")
# Rust's standard library comes without ThreadSanitizer's instrumentation: what it orders by itself is not seen.
SUPPRESSIONS = Path(__file__).with_name("thread_sanitizer.supp")


def version():
    return subprocess.run(["rustc", "+nightly", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def run(tally, options, _make_way):
    """Every case in every way; what fails without Sidestep too is excused. Builds, so never part of the quick run."""
    os.environ["TSAN_OPTIONS"] = f"suppressions={SUPPRESSIONS}"
    chosen = [kind for kind in BUILDS if options.wants(f"sanitizer.{kind}")]
    for kind in [] if options.quick else chosen:
        tally.begin(f"posix cases, {kind}")
        binaries = build(kind, BUILDS[kind])
        socket_cases.run(tally, binaries, options=OPTIONS)


def build(kind, flags):
    directory = paths.TARGET / f"sanitizer-{kind}"
    environment = {**os.environ, "RUSTFLAGS": flags, "CARGO_TARGET_DIR": str(directory)}
    # Optimised: a reader that checks its bytes for 20 ms between two reads sends its connection back to the kernel.
    command = ["cargo", "+nightly", "build", "--release", "--target", TARGET, "-p", "sidestep-posix"]
    done = subprocess.run(command, cwd=paths.ROOT, env=environment, capture_output=True, text=True,
                          timeout=BUILD_SECONDS)
    check(done.returncode == 0, f"no build with the {kind} sanitizer: {done.stderr[-600:]}")
    return directory / TARGET / "release"
