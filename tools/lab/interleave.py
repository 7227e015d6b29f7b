"""Who goes first, and progress on stderr."""

import sys
import time

#: Seconds after which a line is written anew where there is no terminal.
EVERY = 30


def order(variants, round_number):
    """Who goes first changes from round to round, so that nobody always runs on a warm machine.

    Two variants alternate; more rotate.
    """
    first = round_number % len(variants)
    return variants[first:] + variants[:first]


class Progress:
    """One changing line on a terminal; elsewhere one line for each new subject, and from time to time."""

    def __init__(self, total, out=sys.stderr):
        self._total, self._out = total, out
        self._done, self._subject = 0, None
        self._start = self._said = time.monotonic()
        self._live = out.isatty()

    def step(self, subject, detail):
        """A run begins."""
        self._done += 1
        head = f"[{self._done}/{self._total}{self._left()}] {subject}"
        if self._live:
            print(f"\r\x1b[K{head}: {detail}", end="", file=self._out, flush=True)
        elif subject != self._subject or time.monotonic() - self._said > EVERY:
            self._said = time.monotonic()
            print(head, file=self._out, flush=True)
        self._subject = subject

    def say(self, text):
        """A line that stays."""
        print(f"\r\x1b[K{text}" if self._live else text, file=self._out, flush=True)

    def end(self):
        if self._live:
            print("\r\x1b[K", end="", file=self._out, flush=True)

    def _left(self):
        begun = self._done - 1
        if begun < 4:  # too early to tell
            return ""
        left = (time.monotonic() - self._start) / begun * (self._total - begun)
        return f", {left:.0f} s left"
