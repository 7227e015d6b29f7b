"""Facts about processes, read from /proc."""

import contextlib
import os
import signal
import time
from pathlib import Path

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat(pid):
    """The fields of /proc/PID/stat after the command name, or None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def is_running(pid):
    """Whether the process exists and is more than a zombie that waits to be reaped."""
    fields = stat(pid)
    return fields is not None and fields[0] not in "ZX"


def cpu_seconds(pid):
    """User and system time that the process has used so far."""
    fields = stat(pid)
    return 0.0 if fields is None else (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def children(pid):
    """Direct children that run."""
    return {p for p in all_pids() if (f := stat(p)) and int(f[1]) == pid and f[0] not in "ZX"}


def group_members(group):
    """Running processes of one process group."""
    return {p for p in all_pids() if (f := stat(p)) and int(f[2]) == group and f[0] not in "ZX"}


def users_of(directory):
    """Running processes whose output goes to a file below the directory: daemons of a test, whatever group they
    have moved to."""
    prefix = f"{directory}/"
    return {p for p in all_pids() if is_running(p) and any(_link(f"/proc/{p}/fd/{n}").startswith(prefix) for n in (1, 2))}


def kill_all(find, seconds=5.0):
    """SIGKILL to what `find` finds, until it finds nothing: a master may replace a killed worker before it dies."""
    deadline = time.monotonic() + seconds
    while (pids := find()) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def exe_name(pid):
    """The file name of the program that runs there, also when the file was replaced by a new build."""
    return Path(_link(f"/proc/{pid}/exe")).name.removesuffix(" (deleted)")


def command_line(pid):
    return _nul_separated(f"/proc/{pid}/cmdline")


def environment(pid):
    return _nul_separated(f"/proc/{pid}/environ")


def fds(pid):
    """What each file descriptor of the process points to."""
    directory = f"/proc/{pid}/fd"
    links = {}
    try:
        for name in os.listdir(directory):
            try:
                links[int(name)] = os.readlink(f"{directory}/{name}")
            except OSError:
                continue  # closed while we looked
    except OSError:
        return {}
    return links


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _nul_separated(path):
    try:
        return Path(path).read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
