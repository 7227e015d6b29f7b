"""Telling where the run is."""

import sys


def say(text):
    print(text, file=sys.stderr, flush=True)
