"""What a suite has found: a row for each module or stressor, counts, and a line for everything that is not right."""

import sys


class Tally:
    """`unsteady`: failed once under Sidestep, but not when it was run again, or also without. Counts as passed.

    `excused`: fails under Sidestep, and is listed in the suite's code with the reason why that is no defect.
    """

    def __init__(self, suite):
        self.suite = suite
        self.passed = 0
        self.failures = []
        self.unsteady = []
        self.excused = []
        self.skips = []
        self.baseline = []
        self.rows = {}
        self.row = ""

    def note(self, text):
        print(f"{self.suite}: {text}", file=sys.stderr, flush=True)

    def begin(self, row):
        """What is found from now on belongs to this module, stressor or build; "": to the suite as a whole."""
        self.row = row

    def count(self, way, passed, failed=0, skipped=0, ring=0):
        """What it came to in one way: a cell of the table of results."""
        self.rows.setdefault(self.row, {})[way] = {"passed": passed, "failed": failed, "skipped": skipped, "ring": ring}

    def ok(self, count=1):
        self.passed += count

    def fail(self, name, way, detail):
        self.failures.append({"row": self.row, "name": name, "way": way, "detail": detail})
        self.note(f"FAIL {name} [{way}] {detail}")

    def shaky(self, name, way, detail):
        self.passed += 1
        self.unsteady.append({"row": self.row, "name": name, "way": way, "detail": detail})
        self.note(f"unsteady {name} [{way}] {detail}")

    def excuse(self, name, way, reason):
        self.excused.append({"row": self.row, "name": name, "way": way, "reason": reason})
        self.note(f"excused {name} [{way}] {reason}")

    def skip(self, reason, count):
        """So many tests are skipped, without Sidestep too, for a reason that is listed."""
        self.skips.append({"row": self.row, "reason": reason, "count": count})
        self.note(f"{self.row}: {count} tests are skipped: {reason}")

    def baseline_fails(self, name):
        """A test that fails without Sidestep: what it does with it says nothing."""
        self.baseline.append({"row": self.row, "name": name})
        self.note(f"{self.row}: {name} fails without Sidestep")

    def check(self, good, name, way, detail):
        """Counts one check."""
        if good:
            self.ok()
        else:
            self.fail(name, way, detail)

    def as_dict(self):
        return {"suite": self.suite, "passed": self.passed, "failed": len(self.failures), "rows": self.rows,
                "failures": self.failures, "unsteady": self.unsteady, "excused": self.excused, "skips": self.skips,
                "baseline": self.baseline}
