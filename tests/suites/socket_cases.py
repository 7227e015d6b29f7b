"""The project's own socket cases (tests/posix), run in one mode and compared with plain kernel TCP."""

import json
import subprocess
from dataclasses import dataclass

from support import paths
from support.failure import Failure

MODES = ("plain", "upgraded", "flip")
RUN_SECONDS = 1800


@dataclass
class Found:
    """What one case came to. `failure`: None, it passed; `ring`: bytes by ring."""
    failure: str | None
    ring: int


def cases(directory, mode, wanted="", case_seconds=20):
    """Every case whose name contains `wanted`, by name. `directory` holds the binaries of the cases."""
    command = [directory / "posix-run", "--mode", mode, "--json", "--again", "--deadline", str(case_seconds),
               "--sidestep", paths.TARGET / "release" / "sidestep"]
    if wanted:
        command += ["--filter", wanted]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=RUN_SECONDS)
    found = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)
    if found is None:
        raise Failure(f"posix-run [{mode}] says nothing: {done.stderr[-600:]}")
    return {case["name"]: Found(case["failure"], (case["report"] or {}).get("ring", 0))
            for case in json.loads(found)["cases"]}


def compare(tally, by_mode):
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
            tally.check(excused or one.failure is None, case, mode, one.failure)
