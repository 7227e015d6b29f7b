"""What runs have left that were killed before they could clear it away."""

import shutil
import tempfile
from pathlib import Path

from testkit import bpffs, cgroups, names, namespaces, procfs, wait
from testkit.commands import run

# Files that ip-netns(8) shows to programs of a namespace.
ETC_NETNS = Path("/etc/netns")


def sweep():
    """Processes first: they hold the rest."""
    for place in {cgroups.version_2(), *(own for _, own in cgroups.own_places())}:
        for path in orphans(place):
            end(lambda path=path: members(path))
            wait.until(lambda path=path: cgroups.is_removed(path), f"{path} to be empty")
    for path in orphans(namespaces.RUN_NETNS):
        end(lambda name=path.name: inhabitants(name))
        namespaces.remove(path.name)
    for path in orphans(Path(tempfile.gettempdir())):
        # The programs that are pinned there are detached with it.
        for mounted in bpffs.mounted_below(path):
            bpffs.unmount(mounted)
        shutil.rmtree(path, ignore_errors=True)
    for path in orphans(ETC_NETNS):
        shutil.rmtree(path)


def orphans(directory):
    """Things whose run is no more."""
    for path in sorted(directory.glob(f"{names.PREFIX}*")):
        owner = names.owner_of(path.name)
        if owner is not None and not procfs.is_running(owner):
            yield path


def members(cgroup):
    """Of those inside as well."""
    return [int(pid) for file in cgroup.glob("**/cgroup.procs") for pid in file.read_text().split()]


def inhabitants(name):
    return [int(pid) for pid in run("ip", "netns", "pids", name).split()]


def end(find):
    """Each process by its number; where they are is that run's alone."""
    procfs.kill_all(lambda: [pid for pid in find() if procfs.is_running(pid)])
