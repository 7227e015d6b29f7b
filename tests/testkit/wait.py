"""Waiting for conditions with a deadline. Nothing in these tests sleeps and hopes."""

import time

from testkit.failure import Failure

POLL_SECONDS = 0.01


def until(condition, what, seconds=10.0, alive=None):
    """Polls `condition` until it returns something true, and returns that.

    `alive`, where given, is called between polls and raises if waiting has become pointless.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if alive is not None:
            alive()
        if time.monotonic() > deadline:
            raise Failure(f"waited {seconds:g} s in vain for: {what}")
        time.sleep(POLL_SECONDS)
