"""Where a request's CPU goes, by samples: what rings, or anything else that is quicker than TCP, could do without."""

import contextlib
import re
import shutil
import signal
import subprocess

from ..errors import LabError
from ..lab import Lab
from ..netns import must
from . import turn
from .mesh import Mesh
from .report import grid

#: Of all that can be sampled on virtual machines, too: a clock.
EVENT, FREQUENCY = "cpu-clock", 997
SECONDS, CONNECTIONS = 5.0, 64
#: What it is called in the table -> by what it is known: a file, or a function of the kernel with all it calls.
PARTS = {
    "Envoy itself": ("envoy",),
    "libraries": ("libc.so.6", "libsidestep.so", "[vdso]", "ld-linux-x86-64.so.2", "libm.so.6"),
    "kernel": ("[kernel.kallsyms]", "[kernel]"),
}
CALLS = {"sending": "tcp_sendmsg", "receiving": "tcp_recvmsg", "connecting": "__x64_sys_connect"}
LINE = re.compile(r"^\s*([\d.]+)%\s+(?:[\d.]+%\s+)?(.+?)\s*$", re.MULTILINE)
HEAD = "Who | sidecar | samples | " + " | ".join(PARTS) + " | " + " | ".join(f"kernel: {name}" for name in CALLS)


def profile(places, plan, kinds):
    """A table in Markdown."""
    if not shutil.which("perf"):
        raise LabError("'perf' is not installed: it comes with the kernel's tools")
    rows = []
    with Lab() as lab:
        for kind in kinds:
            with Mesh(kind, lab, places, plan, 0) as mesh:
                for role, sidecar in mesh.sidecars.items():
                    rows.append([kind.title, f"{role}'s", *sampled(lab, mesh, sidecar.pid)])
    return grid(HEAD, rows)


def sampled(lab, mesh, pid):
    file = lab.folder / f"{mesh.name}-{pid}.data"
    with recorded(file, pid):
        turn.run(mesh, CONNECTIONS, 0, SECONDS)
    report = ["perf", "report", "-i", str(file), "-g", "none", "--stdio"]
    by_file = shares(must([*report, "--no-children", "--sort", "dso"]))
    by_call = shares(must([*report, "--children", "--sort", "symbol"]))
    samples = must(["perf", "script", "-i", str(file), "-F", "event", "-G"]).count(EVENT)
    parts = [sum(by_file.get(name, 0) for name in names) for names in PARTS.values()]
    calls = [by_call.get(f"[k] {name}", 0) for name in CALLS.values()]
    return [f"{samples:,}", *(f"{share:.0f} %" for share in (*parts, *calls))]


@contextlib.contextmanager
def recorded(file, pid):
    words = ["-q", "-F", str(FREQUENCY), "-e", EVENT, "-g", "-o", str(file), "-p", str(pid)]
    recorder = subprocess.Popen(["perf", "record", *words], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait()


def shares(text):
    """What `perf report` prints: name -> percent."""
    found = {}
    for percent, name in LINE.findall(text):
        found[name.split("  ")[0].strip()] = float(percent)
    return found
