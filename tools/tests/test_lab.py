"""The arithmetic and bookkeeping of tools/lab. Run: python3 -m unittest discover -s tools/tests"""

import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab import procfs, svg, table  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.interleave import Progress, interleave, order  # noqa: E402
from lab.lab import Lab  # noqa: E402
from lab.ring import Report  # noqa: E402
from lab.rows import ROWS  # noqa: E402
from lab.rows.base import Cell, Line, Metric, Sample, at_least, within  # noqa: E402
from lab.stats import factor  # noqa: E402
from lab.variant import PINNED, PLAIN, SIDESTEP  # noqa: E402

LINE = (
    '{"pid":1,"exe":"/usr/sbin/nginx","seen":3,"upgraded":2,"returned":0,"ring_rx":100,"ring_tx":20,'
    '"kernel_rx":7,"kernel_tx":8,"reasons":{"short":1}}\n'
)


class Ratios(unittest.TestCase):
    def test_pairs_share_the_drift(self):
        # The machine gets four times slower on the way; the ratio does not.
        ratio = factor([100, 50, 25], [300, 150, 75], "higher")
        self.assertEqual((ratio.median, ratio.low, ratio.high), (3, 3, 3))

    def test_times_are_turned_round(self):
        self.assertEqual(factor([20, 20, 30], [10, 5, 10], "lower").median, 3)

    def test_nothing_to_divide_by(self):
        self.assertIsNone(factor([0, 0], [5, 5], "higher"))

    def test_pairs_must_match(self):
        self.assertRaises(ValueError, factor, [1], [1, 2], "higher")


class Order(unittest.TestCase):
    def test_each_variant_is_first_in_turn(self):
        for variants in ((PLAIN, SIDESTEP), (PLAIN, PINNED, SIDESTEP)):
            firsts = {order(variants, number)[0] for number in range(len(variants))}
            self.assertEqual(firsts, set(variants))

    def test_every_variant_is_measured_in_every_round(self):
        seen = []
        results = interleave((PLAIN, SIDESTEP), 3, lambda variant: seen.append(variant.name) or len(seen))
        self.assertEqual(seen, ["plain", "sidestep", "sidestep", "plain", "plain", "sidestep"])
        self.assertEqual(results, {"plain": [1, 4, 5], "sidestep": [2, 3, 6]})

    def test_progress_names_each_subject_once(self):
        out = io.StringIO()
        progress = Progress(4, out)
        for subject in ("a", "a", "b", "b"):
            progress.step(subject, "x")
        self.assertEqual(out.getvalue(), "[1/4] a\n[3/4] b\n")


class Reports(unittest.TestCase):
    def report(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "report"
        path.write_text(text)
        return Report(path)

    def test_sums_by_program(self):
        report = self.report(LINE + LINE + LINE.replace("nginx", "curl"))
        self.assertEqual(report.total().ring_bytes, 360)
        nginx = report.total("nginx")
        self.assertEqual((nginx.seen, nginx.upgraded, nginx.kernel_bytes), (6, 4, 30))
        self.assertEqual(nginx.reasons, {"short": 2})

    def test_no_file_is_no_traffic(self):
        self.assertEqual(Report(Path("/nonexistent/report")).total().ring_bytes, 0)

    def test_garbage_is_an_error(self):
        self.assertRaises(LabError, self.report("{}\n").total)


class Judging(unittest.TestCase):
    def line(self, plain, sidestep, goal):
        metric = Metric("x", "x", "lower", {"sidestep": goal})
        cell = Cell("work", (metric,), None)
        cell.samples = {
            "plain": [Sample({"x": value, "limit": 1.0}) for value in plain],
            "sidestep": [Sample({"x": value}) for value in sidestep],
        }
        return Line(cell, metric, SIDESTEP)

    def reached(self, *what):
        line = self.line(*what)
        return line.goal.reached(line)

    def test_times_better_than_the_kernel(self):
        self.assertTrue(self.reached([10, 10, 10], [2, 2, 9], at_least(5)))
        self.assertFalse(self.reached([10, 10, 10], [2, 3, 9], at_least(5)))

    def test_within_a_limit(self):
        self.assertTrue(self.reached([10], [3], within(3, "limit", "")))
        self.assertFalse(self.reached([10], [3.1], within(3, "limit", "")))

    def test_a_baseline_that_was_not_measured(self):
        self.assertIsNone(self.line([10], [2], at_least(5)).versus(PINNED))

    def test_rows_have_names_of_their_own(self):
        self.assertEqual(len({row.name for row in ROWS}), len(ROWS))
        self.assertTrue(all(row.name and row.about and row.targets for row in ROWS))


class Processes(unittest.TestCase):
    def test_everything_is_stopped_orphans_too(self):
        with Lab() as lab:
            # The shell ends at once; its child stays behind and becomes ours.
            shell = lab.start(
                "shell", ["sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!"], None, stdout=subprocess.PIPE
            )
            orphan = int(shell.communicate(timeout=10)[0])
            self.assertEqual(procfs.Stat(orphan).parent, os.getpid())
            folder = lab.folder
        self.assertFalse(Path(f"/proc/{orphan}").exists())
        self.assertFalse(folder.exists())

    def test_cpu_time_of_a_tree(self):
        before = procfs.cpu_seconds(os.getpid())
        subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
        self.assertGreater(procfs.cpu_seconds(os.getpid()), before)

    def test_what_cannot_be_started_is_named(self):
        with Lab() as lab, self.assertRaisesRegex(LabError, "/nonexistent"):
            lab.start("ghost", ["/nonexistent"], None)


class Output(unittest.TestCase):
    def test_figures(self):
        for value, text in ((None, "-"), (123456.7, "123,457"), (23.44, "23.4"), (1.234, "1.23"), (0, "0")):
            self.assertEqual(table.number(value), text)
        self.assertEqual(table.size(1_234_567), "1.23 MB")

    def test_columns_are_aligned(self):
        lines = table.text(["name", "n"], [["a", "1"], None, ["long one", "12345"]]).splitlines()
        self.assertEqual(lines[2:], ["a             1", "", "long one  12345"])

    def test_picture_is_well_formed(self):
        from xml.dom import minidom

        figures = {"median": {"plain": 1.0, "sidestep": 3.0}, "factor": {"median": 3.0}}
        cell = {"path": "direct", "connections": 1, "metrics": dict.fromkeys(("rate", "p90", "cpu"), figures)}
        machine = {
            "cpu": "a < b",
            "cores": 2,
            "kernel": "6",
            "programs": {"wrk": "4", "nginx": "1", "envoy": "1"},
        }
        text = svg.demo({"machine": machine, "plan": {"pairs": 5}, "cells": [cell]}, {"direct": "direct"})
        bars = [r for r in minidom.parseString(text).getElementsByTagName("rect")]
        self.assertEqual(len(bars), 3 * 2 + 2)  # three panels of two bars, and the legend


if __name__ == "__main__":
    unittest.main()
