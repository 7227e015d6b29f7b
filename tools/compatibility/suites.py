"""Test suites of others, from what tests/suites/run.py --json has printed."""

import subprocess
import sys
from collections import Counter

from .markdown import size, table
from .programs import first_object

WAYS = ("plain", "upgraded", "flip")
TITLE = "Test suites"
INTRODUCTION = """Each line is a suite of `tests/suites/`: modules of a suite, stressors, or builds of our own cases. *Plain*, *upgraded* and
*changing* count tests passed / failed / skipped; a test that also fails or is skipped on kernel TCP does not count as a failure of
Sidestep. *By ring*: bytes of all processes, in the upgraded run and in the changing one."""
HEAD = ["suite", "version", "parts", "plain", "upgraded", "changing", "by ring", "result"]


def run(root, wanted):
    """Every suite in every way; what run.py prints."""
    command = [sys.executable, root / "tests/suites/run.py", "--json"]
    if wanted:
        command += ["--filter", wanted]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout


def parse(texts):
    """The suites of one or more runs. A line that several of them have is the last one's."""
    merged = {}
    for text in texts:
        found = first_object(text)
        for suite in found["suites"]:
            into = merged.setdefault(suite["suite"], {"version": "", "rows": {}, "notes": {}})
            into["version"] = found["versions"].get(suite["suite"], into["version"])
            into["rows"].update(suite["rows"])
            for row in [*suite["rows"], *(entry["row"] for entry in suite["failures"])]:
                into["notes"][row] = notes(suite, row)
    return merged


def notes(suite, row):
    """What was found in one line of the table; "": in the suite as a whole."""
    return {kind: [entry for entry in suite.get(kind, []) if entry["row"] == row]
            for kind in ("failures", "unsteady", "excused", "skips", "baseline")}


def count(merged):
    """Lines that are good, and failures."""
    failed = sum(len(one["failures"]) for suite in merged.values() for one in suite["notes"].values())
    good = sum(not suite["notes"][row]["failures"] for suite in merged.values() for row in suite["rows"])
    return good, failed


def section(merged):
    parts = [INTRODUCTION, table(HEAD, [row(suite, found) for suite, found in merged.items()])]
    parts += listed(merged, "failures", "Failures", "detail")
    parts += listed(merged, "excused", "Fails with Sidestep only, and is no defect", "reason")
    parts += listed(merged, "unsteady", "Failed once with Sidestep, and no more when run alone in both ways", "detail")
    parts += listed(merged, "baseline", "Fails without Sidestep")
    return "\n\n".join(parts)


def row(suite, found):
    totals = {}
    for ways in found["rows"].values():
        for way, counts in ways.items():
            totals.setdefault(way, Counter()).update(counts)
    by_ring = ", ".join(size(totals[way]["ring"]) for way in WAYS[1:] if way in totals)
    cells = [cell(totals.get(way)) for way in WAYS]
    return [suite, found["version"], len(found["rows"]), *cells, by_ring, verdict(found["notes"].values())]


def cell(counts):
    return f"{counts['passed']} / {counts['failed']} / {counts['skipped']}" if counts else "-"


def verdict(notes):
    total = {kind: sum(len(one[kind]) for one in notes) for kind in ("failures", "excused", "unsteady")}
    if total["failures"]:
        return f"**{total['failures']} FAIL**"
    return ", ".join(["ok", *(f"{total[kind]} {kind}" for kind in ("excused", "unsteady") if total[kind])])


def listed(merged, kind, title, key=None):
    """A list of findings, one line each, under its title."""
    found = [entry for suite in merged.values() for one in suite["notes"].values() for entry in one[kind]]
    lines = [f"- `{e['name']}`" + (f" ({e['way']}): {first_line(e[key])}" if key else "") for e in found]
    # In several builds the same may fail.
    return [f"{title}:\n\n" + "\n".join(dict.fromkeys(lines))] if lines else []


def first_line(text):
    return str(text).splitlines()[0] if text else ""
