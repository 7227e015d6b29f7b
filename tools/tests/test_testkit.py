"""tests/testkit, and how the test programs find it and each other's modules."""

import importlib
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from testkit import bpffs, cgroups, commands, leftovers, names, paths, wait
from testkit.failure import Failure
from testkit.testbed import Setup

TESTS = Path(__file__).resolve().parents[2] / "tests"
# Programs that run by themselves, some of them as other users or with packages that are installed for them.
PEERS = {"apps/peers", "capture/peers", "cluster/peers", "kube/peers", "packages/peers", "soak/peers"}
SET_PATH = re.compile(r"^sys\.path.*$", re.MULTILINE)


def files():
    return [path for path in sorted(TESTS.glob("**/*.py")) if "node_modules" not in path.parts]


def of_a_program(path):
    return str(path.relative_to(TESTS).parent) not in PEERS


class Modules(unittest.TestCase):
    def test_each_can_be_imported_beside_all_others(self):
        for path in filter(of_a_program, files()):
            name = ".".join(path.relative_to(TESTS).with_suffix("").parts).removesuffix(".__init__")
            with self.subTest(name):
                self.assertEqual(Path(importlib.import_module(name).__file__), path)

    def test_they_are_found_in_one_way(self):
        for path in files():
            up = len(path.relative_to(TESTS).parts) - 1
            expected = f"sys.path.insert(0, str(Path(__file__).resolve().parents[{up}]))"
            with self.subTest(str(path)):
                self.assertIn(SET_PATH.findall(path.read_text()), ([], [expected]))


class Names(unittest.TestCase):
    def test_a_name_tells_whose_it_is(self):
        self.assertEqual(names.owner_of(names.of_this_run("node")), os.getpid())

    def test_names_of_others_belong_to_no_run(self):
        for name in ("web", "sidestep-web", "sidestep-test-x-web", "a-sidestep-test-1-web"):
            self.assertIsNone(names.owner_of(name))


class Leftovers(unittest.TestCase):
    def test_orphans_are_those_whose_run_has_ended(self):
        ended = subprocess.Popen(["true"])
        ended.wait()
        with tempfile.TemporaryDirectory() as directory:
            for name in (names.of_this_run("a"), f"{names.PREFIX}{ended.pid}-b", f"{names.PREFIX}of-nobody", "c"):
                Path(directory, name).touch()
            found = [path.name for path in leftovers.orphans(Path(directory))]
        self.assertEqual(found, [f"{names.PREFIX}{ended.pid}-b"])

    def test_bpf_file_systems_are_found_below_a_directory(self):
        mounts = "bpf /tmp/run/bpf bpf rw 0 0\nbpf /tmp/runner/bpf bpf rw 0 0\nnone /tmp/run/tmp tmpfs rw 0 0\n"
        with mock.patch.object(bpffs.Path, "read_text", return_value=mounts):
            self.assertEqual(bpffs.mounted_below(Path("/tmp/run")), [Path("/tmp/run/bpf")])


class Commands(unittest.TestCase):
    def test_one_that_fails_says_which_and_why(self):
        with self.assertRaisesRegex(Failure, "sh -c echo no >&2; exit 3: exit code 3: no"):
            commands.run("sh", "-c", "echo no >&2; exit 3")

    def test_one_that_does_not_end_in_time_fails(self):
        with self.assertRaisesRegex(Failure, "sleep 60: did not end within 0.05 s"):
            commands.run("sleep", 60, seconds=0.05)

    def test_input_and_output(self):
        self.assertEqual(commands.run("cat", stdin="text"), "text")

    def test_a_missing_program_is_named_with_what_installs_it(self):
        with self.assertRaisesRegex(Failure, "no-such-program is not installed: run tools/install-deps kube"):
            commands.must_be_installed(["sh", "no-such-program"], "kube")

    def test_missing_builds_are_named(self):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "sidestep").touch()
            with self.assertRaisesRegex(Failure, "no sidestepd in .*: run cargo build --release$"):
                paths.built("release", "sidestep", "sidestepd", directory=Path(directory))
            self.assertEqual(paths.built("debug", "sidestep", directory=Path(directory)), Path(directory))


class Waiting(unittest.TestCase):
    def test_it_returns_what_has_come_true(self):
        answers = iter([None, 0, "yes"])
        self.assertEqual(wait.until(lambda: next(answers), "an answer"), "yes")

    def test_it_says_for_what_it_waited_in_vain(self):
        with self.assertRaisesRegex(Failure, "waited 0 s in vain for: rain"):
            wait.until(lambda: False, "rain", 0)


class Setups(unittest.TestCase):
    def test_what_a_broken_start_has_put_up_is_taken_down(self):
        taken_down = []

        class Broken(Setup):
            def start(self):
                self.stack.callback(taken_down.append, "first")
                raise Failure("no second")

        with self.assertRaisesRegex(Failure, "no second"), Broken():
            self.fail("it has not started")
        self.assertEqual(taken_down, ["first"])


class Cgroups(unittest.TestCase):
    def test_a_command_around_keeps_its_words(self):
        with tempfile.TemporaryDirectory() as directory:
            group = cgroups.Cgroup(Path(directory, "group"))
            words = group.around(["printf", "%s|", "two words", 3])
            self.assertEqual(commands.run(*words), "two words|3|")
            self.assertTrue((group.path / "cgroup.procs").read_text().strip().isdigit())


if __name__ == "__main__":
    unittest.main()
