"""The arithmetic and bookkeeping of tools/lab. Run: python3 -m unittest discover -s tools/tests"""

import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab import procfs, table  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.interleave import Progress, order  # noqa: E402
from lab.lab import Lab  # noqa: E402
from lab.ring import Report  # noqa: E402

LINE = (
    '{"pid":1,"exe":"/usr/sbin/nginx","seen":3,"upgraded":2,"returned":0,"ring_rx":100,"ring_tx":20,'
    '"kernel_rx":7,"kernel_tx":8,"reasons":{"short":1}}\n'
)


class Order(unittest.TestCase):
    def test_each_variant_is_first_in_turn(self):
        for variants in ((1, 2), (1, 2, 3)):
            firsts = {order(variants, number)[0] for number in range(len(variants))}
            self.assertEqual(firsts, set(variants))

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

    def test_what_cannot_be_started_is_named(self):
        with Lab() as lab, self.assertRaisesRegex(LabError, "/nonexistent"):
            lab.start("ghost", ["/nonexistent"], None)


class Output(unittest.TestCase):
    def test_figures(self):
        for value, text in ((None, "-"), (123456.7, "123,457"), (23.44, "23.4"), (1.234, "1.23"), (0, "0")):
            self.assertEqual(table.number(value), text)


if __name__ == "__main__":
    unittest.main()
