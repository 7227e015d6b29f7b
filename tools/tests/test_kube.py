"""tests/kube/README.md says what tests/kube/differences.py checks."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from kube.differences import DIFFERENCES

KUBE = Path(__file__).resolve().parents[2] / "tests" / "kube"


class Differences(unittest.TestCase):
    def test_the_page_has_all_of_them_and_no_other(self):
        lines = (KUBE / "README.md").read_text().splitlines()
        start = lines.index("| name | difference |") + 2
        rows = lines[start:lines.index("", start)]
        self.assertEqual(rows, [f"| `{d.name}` | {d.about} |" for d in DIFFERENCES])


if __name__ == "__main__":
    unittest.main()
