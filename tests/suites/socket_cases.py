"""The project's own socket cases (tests/posix), run in one mode and compared with plain kernel TCP."""

import json
import subprocess
from dataclasses import dataclass

from testkit import paths
from testkit.failure import Failure

MODES = ("plain", "upgraded", "flip")
RUN_SECONDS = 1800


@dataclass
class Found:
    """What one case came to. `failure`: None, it passed; `ring`: bytes by ring."""
    failure: str | None
    ring: int


def cases(directory, mode, wanted="", options=(), jobs=2):
    """Every case whose name contains `wanted`, by name. `directory` holds the binaries of the cases, `options` are more
    options of posix-run."""
    command = [directory / "posix-run", "--mode", mode, "--json", "--again", *options,
               "--jobs", str(jobs), "--sidestep", paths.TARGET / "release" / "sidestep"]
    if wanted:
        command += ["--filter", wanted]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=RUN_SECONDS)
    found = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)
    if found is None:
        raise Failure(f"posix-run [{mode}] says nothing: {done.stderr[-600:]}")
    return {case["name"]: Found(case["failure"], (case["report"] or {}).get("ring", 0))
            for case in json.loads(found)["cases"]}


def run(tally, directory, wanted="", options=()):
    """All modes; a case that fails with Sidestep only is run again alone."""
    by_mode = {mode: cases(directory, mode, wanted, options) for mode in MODES}

    def alone(mode, case):
        return cases(directory, mode, case, options, jobs=1)[case].failure

    compare(tally, by_mode, alone)


def compare(tally, by_mode, alone):
    """Counts each mode; a case that fails without Sidestep too is excused."""
    plain = by_mode["plain"]
    for mode, found in by_mode.items():
        failed = [case for case, one in found.items() if one.failure is not None]
        tally.count(mode, passed=len(found) - len(failed), failed=len(failed),
                    ring=sum(one.ring for one in found.values()))
        tally.note(f"{tally.row} [{mode}] {len(found)} cases, {len(failed)} fail")
        if mode == "plain":
            for case in failed:
                tally.baseline_fails(case)
            continue
        for case, one in found.items():
            excused = case in plain and plain[case].failure is not None
            if excused or one.failure is None:
                tally.ok()
            elif alone(mode, case) is None:
                tally.shaky(case, mode, one.failure)
            else:
                tally.fail(case, mode, one.failure)
