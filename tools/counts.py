"""How many tests ran: each kind of output says it in its own words."""

import re


def by_exit_code(_log, succeeded):
    """A stage that is one test by itself."""
    return (1, 0) if succeeded else (0, 1)


def by_cargo(log, succeeded):
    """The sum of cargo's "test result:" lines, one for each test program."""
    found = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed;", log, re.MULTILINE)
    return with_exit_code(sum(int(p) for p, _ in found), sum(int(f) for _, f in found), succeeded)


def by_nextest(log, succeeded):
    """The sum of nextest's summaries: "N tests run: N passed (N slow), N failed, N timed out, N skipped"."""
    passed, failed = 0, 0
    for summary in re.findall(r"^ *Summary \[.*\] .*tests? run: (.*)$", log, re.MULTILINE):
        passed += sum(int(n) for n in re.findall(r"(\d+) passed", summary))
        failed += sum(int(n) for n in re.findall(r"(\d+) (?:exec )?(?:failed|timed out)", summary))
    return with_exit_code(passed, failed, succeeded)


def by_unittest(log, succeeded):
    """Python's own summary: "Ran N tests", and "FAILED (failures=A, errors=B)" if some failed."""
    ran = sum(int(n) for n in re.findall(r"^Ran (\d+) tests? in", log, re.MULTILINE))
    verdicts = " ".join(re.findall(r"^FAILED \((.*)\)$", log, re.MULTILINE))
    failed = sum(int(n) for n in re.findall(r"\b(?:failures|errors)=(\d+)", verdicts))
    return with_exit_code(max(ran - failed, 0), failed, succeeded)


def by_closing_line(*names):
    """The last line `NAME: N passed, N failed` of each of our own test programs."""
    def count(log, succeeded):
        found = [re.findall(rf"^{name}: (\d+) passed, (\d+) failed$", log, re.MULTILINE) for name in names]
        if not all(found):
            return 0, 1
        passed, failed = (sum(int(of_one[-1][i]) for of_one in found) for i in (0, 1))
        return with_exit_code(passed, failed, succeeded)
    return count


def with_exit_code(passed, failed, succeeded):
    """Counts that do not agree with the exit code, or that are zero, hide a failure: it is added."""
    if failed == 0 and (not succeeded or passed == 0):
        failed = 1
    return passed, failed
