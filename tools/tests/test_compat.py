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

from compatibility import programs, suites  # noqa: E402

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
        self.assertIn("| cpython | 3.11 | 1 | 3 / 0 / 0 | 3 / 0 / 0 | 3 / 0 / 0 | 2.5 kB, 40 B | ok |",
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

    def test_a_suite_is_one_line(self):
        merged = suites.parse([output({"test_x": self.ROW, "test_y": self.ROW})])
        self.assertIn("| cpython | 3.11 | 2 | 6 / 0 / 0 | 6 / 0 / 0 | 6 / 0 / 0 | 5 kB, 80 B | ok |",
                      suites.section(merged))


class Programs(unittest.TestCase):
    def test_a_program_is_one_line_and_failures_are_named(self):
        report = {"upgraded": 2, "seen": 3, "ring": 1500, "kernel": 500, "reasons": {"short": 1}}
        result = {"version": "1.2", "ok": True, "reports": {"1": report}}
        texts = [json.dumps({"results": [
            {**result, "name": "prog.one", "about": "It works.", "mode": "preloaded"},
            {**result, "name": "prog.two", "about": "", "mode": "preloaded"},
            {**result, "name": "prog.two", "about": "", "mode": "flip", "ok": False},
        ]})]
        found = programs.parse(texts)
        self.assertEqual(programs.count(found), (2, 1))
        self.assertIn("| prog | 1.2 | **1 of 2 FAIL** | 4 of 6 | 3 kB of 4 kB | short 2 |", programs.section(found))
        self.assertIn("- prog, flip: two", programs.section(found))


class Page(unittest.TestCase):
    def test_a_part_that_was_not_run_stays(self):
        compat = load_compat()
        merged = suites.parse([output({"test_x": Suites.ROW})])
        with tempfile.TemporaryDirectory() as directory:
            compat.PAGE, compat.KEPT = Path(directory) / "page.md", Path(directory) / "kept.json"
            compat.write({"programs": []})
            compat.write({"suites": merged})
            self.assertEqual(json.loads(compat.KEPT.read_text()), {"programs": [], "suites": merged})
            page = compat.PAGE.read_text()
            self.assertTrue(page.startswith("# Compatibility\n"))
            self.assertIn("## Programs\n", page)
            self.assertIn("| cpython |", page)

    def test_the_page_is_what_the_kept_results_say(self):
        compat = load_compat()
        self.assertEqual(compat.PAGE.read_text(), compat.page(json.loads(compat.KEPT.read_text())))


if __name__ == "__main__":
    unittest.main()
