"""Checks and failures."""

from testkit.console import say

# Failures that are printed for each part; the others are in the JSON file.
MOST_SHOWN = 25


class Checks:
    def __init__(self):
        self.passed = 0
        self.failures = []
        self.figures = {}

    def check(self, is_right, text):
        """The text, or a function that returns it, says what was expected, what was seen, and where."""
        if is_right:
            self.passed += 1
            return
        self.failures.append(text() if callable(text) else text)
        if len(self.failures) <= MOST_SHOWN:
            say(f"FAIL {self.failures[-1]}")
