"""Commands of which each must succeed."""

import json
import os
import shutil
import subprocess

from testkit.failure import Failure

# Those of the administrator are not in everybody's PATH.
ENV = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}


def run(*words, env=None, stdin=None, seconds=None):
    """The command's output; what it complained about if it failed."""
    words = [str(word) for word in words]
    try:
        done = subprocess.run(words, env=env or ENV, input=stdin, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(words)}: did not end within {seconds:g} s") from None
    if done.returncode != 0:
        raise Failure(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def bpftool(*words):
    """What bpftool says in JSON."""
    return json.loads(run("bpftool", "--json", *words) or "null")


def must_be_installed(programs, what):
    """`what`: the argument of tools/install-deps that installs them."""
    for name in programs:
        if shutil.which(name, path=ENV["PATH"]) is None:
            raise Failure(f"{name} is not installed: run tools/install-deps {what}")
