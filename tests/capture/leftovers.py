"""What runs have left that were killed before they could clear it away. Its names hold the number of the run."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import cgroups
import namespaces
from commands import run
from support import procfs


def sweep():
    for path in orphans(cgroups.version_2(), cgroups.PREFIX):
        end_members(path)
    for path in orphans(Path(tempfile.gettempdir()), cgroups.PREFIX):
        # The programs that are pinned there are detached with it.
        for bpffs in path.glob("bpf*"):
            subprocess.run(["umount", "--lazy", bpffs], capture_output=True)
        shutil.rmtree(path, ignore_errors=True)
    for path in orphans(namespaces.RUN_NETNS, namespaces.PREFIX):
        run("ip", "netns", "delete", path.name)
    for path in orphans(Path("/etc/netns"), namespaces.PREFIX):
        shutil.rmtree(path)


def orphans(directory, prefix):
    """Things whose run is no more."""
    for path in sorted(directory.glob(f"{prefix}*")):
        owner = re.match(rf"{prefix}(\d+)-", path.name)
        if owner and not procfs.is_running(int(owner.group(1))):
            yield path


def end_members(cgroup):
    """Each by its number; the cgroup is that run's alone."""
    def members():
        pids = [int(pid) for file in cgroup.glob("**/cgroup.procs") for pid in file.read_text().split()]
        return [pid for pid in pids if procfs.is_running(pid)]
    procfs.kill_all(members)
    for path in sorted(cgroup.glob("**/"), reverse=True):
        path.rmdir()
