"""How long Sidestep's programs run for a connection, by the kernel's own account (bpf_stats_enabled).

The account itself costs two looks at the clock a run, so it is only on for one turn that counts for nothing else.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from ..netns import must

SWITCH = Path("/proc/sys/kernel/bpf_stats_enabled")


@dataclass(frozen=True)
class Program:
    name: str
    runs_a_connection: float
    ns_a_run: float


def account(cgroup, dial):
    """What each program attached to the cgroup did while `dial` made connections and returned their number."""
    before = SWITCH.read_text(encoding="ascii")
    SWITCH.write_text("1", encoding="ascii")
    try:
        begun = counters(cgroup)
        connections = dial()
        ended = counters(cgroup)
    finally:
        SWITCH.write_text(before, encoding="ascii")
    used = {name: (runs - begun[name][0], time - begun[name][1]) for name, (runs, time) in ended.items()}
    return [
        Program(name, runs / connections, time / runs) for name, (runs, time) in sorted(used.items()) if runs
    ]


def counters(cgroup):
    """name -> (runs, nanoseconds)"""
    attached = json.loads(must(["bpftool", "-j", "cgroup", "show", str(cgroup)]).strip() or "[]")
    shown = [json.loads(must(["bpftool", "-j", "prog", "show", "id", str(each["id"])])) for each in attached]
    return {each["name"]: (each.get("run_cnt", 0), each.get("run_time_ns", 0)) for each in shown}
