"""Commands of which each must succeed."""

import json
import os
import subprocess

from support.failure import Failure

ENV = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}


def run(*words, stdin=None):
    """The command's output; what it complained about if it failed."""
    words = [str(word) for word in words]
    done = subprocess.run(words, env=ENV, input=stdin, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def bpftool(*words):
    """What bpftool says in JSON."""
    return json.loads(run("bpftool", "--json", *words) or "null")
