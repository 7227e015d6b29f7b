"""What a suite has found: counts, and a line for everything that is not as it should be."""

import sys


class Tally:
    """`unsteady`: failed once under Sidestep, but not when it was run again, or also without. Counts as passed."""

    def __init__(self, suite):
        self.suite = suite
        self.passed = 0
        self.failures = []
        self.unsteady = []

    def note(self, text):
        print(f"{self.suite}: {text}", file=sys.stderr, flush=True)

    def ok(self, count=1):
        self.passed += count

    def fail(self, name, way, detail):
        self.failures.append({"name": name, "way": way, "detail": detail})
        self.note(f"FAIL {name} [{way}] {detail}")

    def shaky(self, name, way, detail):
        self.passed += 1
        self.unsteady.append({"name": name, "way": way, "detail": detail})
        self.note(f"unsteady {name} [{way}] {detail}")

    def check(self, good, name, way, detail):
        """Counts one check."""
        if good:
            self.ok()
        else:
            self.fail(name, way, detail)

    def as_dict(self):
        return {"suite": self.suite, "passed": self.passed, "failed": len(self.failures),
                "failures": self.failures, "unsteady": self.unsteady}
