"""Commands of which each must succeed."""

import subprocess

from support.failure import Failure


def run(*words, env=None):
    """The command's output; what it complained about if it failed."""
    words = [str(word) for word in words]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
