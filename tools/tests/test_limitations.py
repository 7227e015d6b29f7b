"""LIMITATIONS.md names a test for every reason, and each of these tests exists."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "LIMITATIONS.md").read_text()
CASES = "".join(path.read_text() for path in sorted((ROOT / "tests/posix/src/cases").glob("*.rs")))
REASONS = (ROOT / "crates/abi/src/reason.rs").read_text()

ROW = re.compile(r"^\| (\d+) \| `([\w-]+)` \|.*\| `([^`|]+)` \|$", re.MULTILINE)


def declaration(case):
    """What is said of a case where it is listed, up to the next one."""
    found = re.search(rf'case\(\s*"{re.escape(case)}".*?(?=\bcase\(|\];)', CASES, re.DOTALL)
    return found[0] if found else None


class Limitations(unittest.TestCase):
    def test_every_reason_has_its_row(self):
        codes = re.findall(r'^ +\w+ = (\d+), "([\w-]+)";', REASONS, re.MULTILINE)
        self.assertGreater(len(codes), 20)
        self.assertEqual([(code, name) for code, name, _ in ROW.findall(PAGE)], codes)

    def test_every_reason_is_shown(self):
        for _, reason, test in ROW.findall(PAGE):
            with self.subTest(reason=reason):
                if ": " in test:
                    self.in_its_file(test)
                else:
                    self.assertIn(f'.reason("{reason}")', declaration(test) or "no such case")

    def test_every_test_that_is_named_exists(self):
        named = [test for line in re.findall(r"Shown by ((?:`[^`]+`[,.\s]*)+)", PAGE) for test in re.findall("`([^`]+)`", line)]
        self.assertGreater(len(named), 10)
        for test in named:
            with self.subTest(test=test):
                if ": " in test:
                    self.in_its_file(test)
                else:
                    self.assertIsNotNone(declaration(test))

    def in_its_file(self, test):
        path, _, what = test.partition(": ")
        self.assertIn(what, (ROOT / path).read_text())


if __name__ == "__main__":
    unittest.main()
