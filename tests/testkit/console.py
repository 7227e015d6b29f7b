"""Telling where a run is, and ending it by a signal."""

import os
import signal
import sys


def say(text):
    print(text, file=sys.stderr, flush=True)


def end_by_signals():
    """From now on SIGTERM and SIGINT raise KeyboardInterrupt, once: what follows is the clearing up.

    A shell lets what it runs in the background ignore SIGINT.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _on_end)


def _on_end(_signal, _frame):
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def must_be_root(program):
    if os.geteuid() != 0:
        sys.exit(f"{program}: needs root, for network namespaces")
