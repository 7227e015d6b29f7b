"""On what a measurement ran: figures without it mean nothing."""

import os
import platform
import re
import subprocess
import time

from .errors import LabError


def describe(places, programs):
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load": os.getloadavg(),
        "tuning": _tuning(),
        "programs": {name: _version(places, name) for name in programs},
    }


def _tuning():
    """SIDESTEP_* settings of the caller."""
    return {name: value for name, value in os.environ.items() if name.startswith("SIDESTEP_")}


def _cpu():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        found = re.search(r"^model name\s*: (.*)$", file.read(), re.M)
    return found.group(1) if found else platform.machine()


def _version(places, name):
    """The first thing that looks like a version in what the program says about itself."""
    option = "-v" if name == "nginx" else "--version"
    try:
        binary = _binary(places, name)
    except LabError:
        return None
    done = subprocess.run([binary, option], capture_output=True, text=True, timeout=20, check=False)
    found = re.search(r"\d+\.\d+(\.\d+)*", (done.stdout + done.stderr).replace(binary, ""))
    return found.group(0) if found else None


def _binary(places, name):
    if name == "envoy":
        return places.envoy()
    return places.kubernetes(name) if name == "kube-proxy" else places.tool(name)
