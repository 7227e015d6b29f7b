"""Real programs under load, from what tests/apps/run.py --json has printed."""

import json
import subprocess
import sys

from .markdown import size, table

MODES = ("plain", "preloaded", "flip")
TITLE = "Programs"
INTRODUCTION = """Each line is a test in `tests/apps/programs/` that runs a real program under load and compares every
byte.

*By ring* counts, in the upgraded run, connections (ends) and bytes of all processes with the library in them; what is
missing there has a reason code, see [LIMITATIONS.md](../LIMITATIONS.md#reason-codes)."""
HEAD = ["program", "version", "exercised", "by ring", "plain", "upgraded", "changing", "reason codes"]


def run(root, wanted):
    """Every program in every mode; what run.py prints."""
    command = [sys.executable, root / "tests/apps/run.py", "--slow", "--mode", "all", "--json"]
    if wanted:
        command += ["--filter", wanted]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout


def parse(texts):
    """The results in one or more runs' output."""
    return [result for text in texts for result in first_object(text)["results"]]


def first_object(text):
    line = next((line for line in text.splitlines() if line.startswith("{")), None)
    if line is None:
        sys.exit("compat: no line with results: the run that was to print it has not ended, or has failed")
    return json.loads(line)


def count(found):
    """Passed and failed."""
    failed = sum(not result["ok"] for result in found)
    return len(found) - failed, failed


def section(found):
    tests = {}
    for result in found:
        tests.setdefault(result["name"], {})[result["mode"]] = result
    return f"{INTRODUCTION}\n\n{table(HEAD, [row(name, modes) for name, modes in sorted(tests.items())])}"


def row(name, modes):
    """One line of the table."""
    result = modes.get("preloaded") or next(iter(modes.values()))
    program, test = name.split(".", 1)
    reports = result["reports"]
    ring, kernel = total(reports, "ring"), total(reports, "kernel")
    by_ring = f"{total(reports, 'upgraded')} of {total(reports, 'seen')}; {size(ring)} of {size(ring + kernel)}"
    about = result["about"].rstrip(".") or test.replace("_", " ")
    return [program, result["version"], about, by_ring, *(verdict(modes, mode) for mode in MODES), reasons(reports)]


def total(reports, *keys):
    return sum(report[key] for report in reports.values() for key in keys)


def reasons(reports):
    counts = {}
    for report in reports.values():
        for name, count_of in report["reasons"].items():
            counts[name] = counts.get(name, 0) + count_of
    return ", ".join(f"{name} {count_of}" for name, count_of in sorted(counts.items()))


def verdict(modes, mode):
    if mode not in modes:
        return "-"
    return "ok" if modes[mode]["ok"] else "**FAIL**"
