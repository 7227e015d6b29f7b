"""Real programs under load, from what tests/apps/run.py --json has printed."""

import json
import subprocess
import sys
from collections import Counter

from .markdown import size, table

MODES = ("plain", "preloaded", "flip")
TITLE = "Programs"
INTRODUCTION = """Tests in `tests/apps/programs/` run real programs under load and compare every byte. The columns
*connections by ring* (which counts ends of connections) and *bytes by ring* say how many of those that processes with the library
had in the upgraded run used rings. The rest stayed on the kernel for the reasons in the last column:
[reason codes](../LIMITATIONS.md#reason-codes)."""
HEAD = ["program", "version", "tests", "connections by ring", "bytes by ring", "reasons, most frequent first"]
# A program's further reasons are in the JSON file.
REASONS = 3


def run(root, wanted):
    """Every program in every mode; what run.py prints."""
    command = [sys.executable, root / "tests/apps/run.py", "--slow", "--mode", "all", "--json"]
    if wanted:
        command += ["--filter", wanted]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout


def parse(texts):
    """What is kept of one or more runs' output: one entry a test."""
    tests = {}
    for result in (result for text in texts for result in first_object(text)["results"]):
        tests.setdefault(result["name"], {})[result["mode"]] = result
    return [entry(name, modes) for name, modes in sorted(tests.items())]


def first_object(text):
    line = next((line for line in text.splitlines() if line.startswith("{")), None)
    if line is None:
        sys.exit("compat: no line with results: the run that was to print it has not ended, or has failed")
    return json.loads(line)


def entry(name, modes):
    """Verdicts of all modes, and counts of the upgraded run."""
    result = modes.get("preloaded") or next(iter(modes.values()))
    reports = result["reports"].values()
    program, test = name.split(".", 1)
    reasons = Counter()
    for report in reports:
        reasons.update(report["reasons"])
    return {
        "program": program, "version": result["version"],
        "about": result["about"].rstrip(".") or test.replace("_", " "),
        "ok": {mode: modes[mode]["ok"] for mode in MODES if mode in modes},
        **{key: sum(report[key] for report in reports) for key in ("upgraded", "seen", "ring", "kernel")},
        "reasons": dict(sorted(reasons.items())),
    }


def count(found):
    """Passed and failed."""
    verdicts = [ok for test in found for ok in test["ok"].values()]
    return verdicts.count(True), verdicts.count(False)


def section(found):
    programs = {}
    for test in found:
        programs.setdefault((test["program"], test["version"]), []).append(test)
    parts = [INTRODUCTION, table(HEAD, [row(*key, tests) for key, tests in programs.items()])]
    failed = [f"- {test['program']}, {mode}: {test['about']}" for test in found
              for mode, ok in test["ok"].items() if not ok]
    return "\n\n".join(parts + (["Failures:\n\n" + "\n".join(failed)] if failed else []))


def row(program, version, tests):
    total = {key: sum(test[key] for test in tests) for key in ("upgraded", "seen", "ring", "kernel")}
    reasons = Counter()
    for test in tests:
        reasons.update(test["reasons"])
    named = ", ".join(f"{name} {number}" for name, number in reasons.most_common(REASONS))
    by_ring = f"{size(total['ring'])} of {size(total['ring'] + total['kernel'])}"
    return [program, version, verdict(tests), f"{total['upgraded']} of {total['seen']}", by_ring, named]


def verdict(tests):
    failed = sum(not all(test["ok"].values()) for test in tests)
    return f"**{failed} of {len(tests)} FAIL**" if failed else f"{len(tests)} ok"
