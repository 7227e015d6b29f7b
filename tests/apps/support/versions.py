"""What a program says of its version."""

import re
import subprocess

from testkit.failure import Failure


def of(pattern, *command):
    """The first group of `pattern` in what the command prints, wherever it prints it."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=30)
    found = re.search(pattern, done.stdout + done.stderr)
    if not found:
        raise Failure(f"{command[0]} does not tell its version: {(done.stdout + done.stderr)[:200]}")
    return found.group(1)
