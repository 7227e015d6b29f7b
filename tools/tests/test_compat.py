"""Tests of the page that tools/compat makes."""

import importlib.machinery
import importlib.util
import json
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOOLS))

from compatibility import suites  # noqa: E402

FINDINGS = {"failures": [], "unsteady": [], "excused": [], "skips": [], "baseline": []}


def load_compat():
    loader = importlib.machinery.SourceFileLoader("compat", str(TOOLS / "compat"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("compat", loader))
    loader.exec_module(module)
    return module


def cell(passed, failed=0, ring=0):
    return {"passed": passed, "failed": failed, "skipped": 0, "ring": ring}


def output(rows, **findings):
    """What one run prints."""
    suite = {"suite": "cpython", "rows": rows, **FINDINGS, **findings}
    return "a line before\n" + json.dumps({"versions": {"cpython": "3.11"}, "suites": [suite]}) + "\n"


class Suites(unittest.TestCase):
    ROW = {"plain": cell(3), "upgraded": cell(3, ring=2500), "flip": cell(3, ring=40)}

    def test_a_line_of_the_table(self):
        merged = suites.parse([output({"test_x": self.ROW})])
        self.assertIn("| cpython | 3.11 | test_x | 3 / 0 / 0 | 3 / 0 / 0 | 3 / 0 / 0 | 2.5 kB, 40 B | ok |",
                      suites.section(merged))
        self.assertEqual(suites.count(merged), (1, 0))

    def test_a_failure_is_shown_and_counted(self):
        failure = {"row": "test_x", "name": "test.test_x.T.y", "way": "flip", "detail": "lost\nmore"}
        merged = suites.parse([output({"test_x": self.ROW}, failures=[failure])])
        self.assertIn("| **1 FAIL** |", suites.section(merged))
        self.assertIn("- `test.test_x.T.y` (flip): lost\n", suites.section(merged) + "\n")
        self.assertEqual(suites.count(merged), (0, 1))

    def test_a_failure_without_a_line_counts_too(self):
        failure = {"row": "", "name": "what is left", "way": "flip", "detail": "a file"}
        merged = suites.parse([output({"test_x": self.ROW}, failures=[failure])])
        self.assertEqual(suites.count(merged), (1, 1))

    def test_a_later_run_of_a_line_replaces_the_earlier_one(self):
        failure = {"row": "test_x", "name": "n", "way": "flip", "detail": "lost"}
        merged = suites.parse([output({"test_x": self.ROW, "test_y": self.ROW}, failures=[failure]),
                               output({"test_x": self.ROW})])
        self.assertEqual(suites.count(merged), (2, 0))


class Page(unittest.TestCase):
    def test_a_part_that_was_not_run_stays(self):
        compat = load_compat()
        with tempfile.TemporaryDirectory() as directory:
            compat.PAGE = Path(directory) / "page.md"
            compat.write({"Programs": "old | table"})
            compat.write({"Test suites": "suites"})
            compat.write({"Programs": "new\n\nlines"})
            self.assertEqual(compat.parse_page(compat.PAGE.read_text()),
                             {"Programs": "new\n\nlines", "Test suites": "suites"})
            self.assertTrue(compat.PAGE.read_text().startswith("# Compatibility\n"))


if __name__ == "__main__":
    unittest.main()
