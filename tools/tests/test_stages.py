"""tools/test: how it counts, and what it shows of a log."""

import contextlib
import importlib.machinery
import importlib.util
import io
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
loader = importlib.machinery.SourceFileLoader("stages", str(ROOT / "tools" / "test"))
stages = importlib.util.module_from_spec(importlib.util.spec_from_loader("stages", loader))
loader.exec_module(stages)

CARGO = """     Running tests/one.rs (target/debug/deps/one-1)

running 2 tests
test good ... ok
test bad ... FAILED

failures:

---- bad stdout ----
thread 'bad' panicked at tests/one.rs:3:5:
it was 5

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/two.rs (target/debug/deps/two-1)

running 1 test
test fine ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""


NEXTEST = """        PASS [   0.016s] ( 1/3) sidestep-ring::ring wraps
        SLOW [> 30.000s] ( 2/3) sidestep-agent::lab long
        FAIL [   0.020s] ( 3/3) sidestep-ring::ring bad
────────────
     Summary [  31.036s] 5 tests run: 2 passed (1 slow), 2 failed, 1 timed out, 4 skipped
        FAIL [   0.020s] ( 3/3) sidestep-ring::ring bad
"""


class Counts(unittest.TestCase):
    def test_nextest(self):
        self.assertEqual(stages.by_nextest(NEXTEST, False), (2, 3))
        self.assertEqual(stages.by_nextest(NEXTEST.replace("2 failed, 1 timed out, ", ""), True), (2, 0))
        self.assertEqual(stages.by_nextest("", True), (0, 1))

    def test_cargo(self):
        self.assertEqual(stages.by_cargo(CARGO, False), (2, 1))

    def test_what_counts_nothing_or_disagrees_with_its_exit_code_is_a_failure(self):
        self.assertEqual(stages.by_cargo("", True), (0, 1))
        self.assertEqual(stages.by_cargo(CARGO.replace("1 failed", "0 failed"), False), (2, 1))
        self.assertEqual(stages.by_closing_line("apps")("apps: 3 passed, 0 failed", True), (3, 0))
        self.assertEqual(stages.by_closing_line("apps")("posix: 3 passed, 0 failed", True), (0, 1))
        self.assertEqual(stages.by_exit_code("", False), (0, 1))

    def test_of_several_programs_each_must_say_how_many_ran(self):
        both = stages.by_closing_line("posix", "apps")
        self.assertEqual(both("posix: 3 passed, 0 failed\napps: 2 passed, 1 failed", False), (5, 1))
        self.assertEqual(both("posix: 3 passed, 0 failed", True), (0, 1))


class Logs(unittest.TestCase):
    def test_what_failed_is_not_pushed_out_by_what_passed(self):
        passed = "".join(f"     Running tests/{n}.rs (x)\n\nrunning 1 test\ntest t{n} ... ok\n\ntest result: ok. 1 passed\n"
                         for n in range(100))
        shown = stages.what_matters(CARGO + passed)
        self.assertLess(len(shown), stages.SHOWN_LINES)
        self.assertIn("it was 5", shown)
        self.assertIn("test bad ... FAILED", shown)


class Stages(unittest.TestCase):
    def test_debug_builds_have_one_selection_of_packages(self):
        """Another one would build what they share once more."""
        steps = [step for stage in stages.stages() if stage.part != stages.NAMED and not stage.env for step in stage.commands]
        every = [command for step in steps for command in (step if isinstance(step, tuple) else [step])]
        selections = [command[2:] for command in every if command[:2] == ["cargo", "build"] or "nextest" in command]
        debug = [words for words in selections if "--release" not in words]
        self.assertEqual([[word for word in words if word.startswith("--")][:2] for words in debug], [["--workspace", "--tests"]] * 3)

    def test_the_rest_is_what_all_adds_to_the_test(self):
        test, rest, every = (self.chosen(*words) for words in ([], ["--rest"], ["--all"]))
        self.assertEqual(set(test) | set(rest), set(every))
        self.assertEqual(set(test) & set(rest), {"deps", "build"})
        self.assertNotIn("soak", test)
        self.assertNotIn("chart", every)

    def test_a_stage_that_is_named_runs_whatever_it_is_a_part_of(self):
        self.assertEqual(self.chosen("--only", "soak", "--only", "chart"), ["soak", "chart"])
        self.assertNotIn("loom", self.chosen("--skip", "loom"))

    def test_commands_of_a_tuple_run_at_the_same_time(self):
        """Each waits until the other one is there."""
        with tempfile.TemporaryDirectory() as folder:
            first = ["sh", "-c", f"touch {folder}/a; until [ -e {folder}/b ]; do sleep 0.01; done"]
            second = ["sh", "-c", f"touch {folder}/b; until [ -e {folder}/a ]; do sleep 0.01; done"]
            self.assertEqual(self.run_step(folder, (first, second)), (1, 0))
            self.assertEqual(self.run_step(folder, (["true"], ["false"])), (0, 1))

    @staticmethod
    def run_step(folder, step):
        with mock.patch.object(stages, "LOGS", Path(folder)):
            result = stages.run_stage(stages.Stage("one", "", 10, [step], stages.by_exit_code), time.monotonic() + 10, 1)
        return result.passed, result.failed

    @staticmethod
    def chosen(*words):
        every = stages.stages()
        options = stages.parse_arguments([stage.name for stage in every], words)
        return [stage.name for stage in every if stages.is_chosen(stage, options)]


class Again(unittest.TestCase):
    def run_twice(self, again):
        with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder:
            command = ["sh", "-c", f"test -e {folder}/seen || {{ touch {folder}/seen; exit 1; }}"]
            once = stages.Stage("again", "fails the first time", 10, [command], stages.by_exit_code, needs_build=False)
            kept, stages.LOGS = stages.LOGS, Path(folder)
            try:
                with contextlib.redirect_stdout(io.StringIO()) as said:
                    results = stages.run_all([once], 60, 1, again)
            finally:
                stages.LOGS = kept
        return [(result.passed, result.failed) for result in results], said.getvalue()

    def test_only_the_second_run_counts_and_both_are_shown(self):
        counted, said = self.run_twice(again=True)
        self.assertEqual(counted, [(1, 0)])
        self.assertIn("FAIL  again: 0 passed, 1 failed", said)
        self.assertIn("1 failed the first time", said)

    def test_unless_asked_for_the_first_run_counts(self):
        self.assertEqual(self.run_twice(again=False)[0], [(0, 1)])


if __name__ == "__main__":
    unittest.main()
