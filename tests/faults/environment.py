"""Rounds in which what surrounds the processes is at fault: full disks, missing file systems, a memory limit, clocks
that differ. Each is a function of the bench that returns what is to be told, or raises `NotTried`."""

import contextlib
import signal
import subprocess

from chaos.pair import KILLED
from faults import cgroup
from faults.outcome import NotTried
from faults.rounds import SLOW_SECONDS, SOME_BYTES
from faults.scene import Scene, by_kernel, by_ring, finish_by_status
from testkit import wait
from testkit.failure import check
from testkit.sidestep import Sidestep

# --- disks and file systems -------------------------------------------------------------------------------------------

# A file system with room for a few names, and for no byte more.
FULL = "mount -t tmpfs -o size=4k,nr_inodes=8 none {0}; head -c 4096 /dev/zero >{0}/everything"
# One that has no room even for a name.
NO_NAMES = "mount -t tmpfs -o nr_inodes=1 none {0}"
# /dev with what every program needs, and no more.
BARE_DEV = ("mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5; "
            "mknod -m 666 /dev/urandom c 1 9")
NO_PROC = "umount --lazy /proc"


def in_mounts(script):
    """What a process is started inside of, so that this script changes the file systems for it alone."""
    around = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{script}; exec "$@"', "sh"]
    tried = subprocess.run([*around, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        raise NotTried(f"file systems cannot be changed: {tried.stderr.strip()}")
    return around


def empty_directory(scene, name):
    path = scene.directory / name
    path.mkdir()
    return path


def disk_full_for_reports(bench):
    """Reports cannot be written, and nothing else is concerned."""
    with Scene(bench, "full-disk") as scene:
        disk = empty_directory(scene, "disk")
        around = in_mounts(FULL.format(disk))
        pair = scene.pair(around=scene.both(around), reports=disk)
        pair.wait_bytes(SOME_BYTES, "at first", SLOW_SECONDS)
        told = finish_by_status(scene, pair)
        check(not list(disk.iterdir()), "the full disk was not where the reports went")
        return told


def disk_full_for_the_broker(bench):
    """There is no room for the broker's socket: a word of warning, and all goes by kernel."""
    with Scene(bench, "no-socket") as scene:
        disk = empty_directory(scene, "disk")
        nowhere = Sidestep(str(disk / "broker"))
        around = scene.both(in_mounts(NO_NAMES.format(disk)))
        pair = scene.checked_load(layers=scene.both(nowhere), around=around)
        check("warning" in pair.processes["server"].output(), f"no warning:\n{pair.logs()}")
        return by_kernel(pair, scene.both("no-broker"))


def without_dev_shm(bench):
    """Nobody needs /dev/shm: not the broker, not the programs."""
    around = in_mounts(BARE_DEV)
    with Scene(bench, "no-shm", around_broker=around) as scene:
        return by_ring(scene.checked_load(around=scene.both(around)))


def programs_without_proc(bench):
    """Programs that see no /proc."""
    with Scene(bench, "no-proc") as scene:
        return by_ring(scene.checked_load(around=scene.both(in_mounts(NO_PROC)), direct=True))


def nobody_has_proc(bench):
    """Without /proc the broker cannot tell a doorbell from anything else, and hands none out: waits are slower."""
    around = in_mounts(NO_PROC)
    with Scene(bench, "no-proc-at-all", around_broker=around) as scene:
        pair = scene.checked_load(around=scene.both(around), direct=True)
        check("broken-peer" not in scene.status()["refused"], f"taken for a lie: {scene.status()['refused']}")
        return f"{pair.ring_bytes():,} bytes by ring, without doorbells"


# --- memory -----------------------------------------------------------------------------------------------------------

# Less than one ring, more than the program needs.
LIMIT_BYTES = 12 << 20
RING_BYTES = 16 << 20
# So long a server reads nothing at a time. A connection that was just on the kernel when it stopped fills no ring.
STOPPED_SECONDS = 2


def memory_limit_reached(bench):
    """The rings of a writer fill its control group, and the kernel kills it: its peer sees all of it, and the end."""
    with cgroup.limited(LIMIT_BYTES) as group, Scene(bench, "memory-limit") as scene:
        pair = scene.pair(around={"client": group.around(), "server": ()}, ring_size=RING_BYTES)
        wait.until(lambda: killed_while_stopped(pair), "the limit to be reached", SLOW_SECONDS)
        code = pair.processes["client"].popen.returncode
        check(code in KILLED and group.kills() > 0,
              f"the client ended with {code}, {group.kills()} killed for want of memory")
        pair.survive("client", delivered=set())
        return f"killed at {LIMIT_BYTES:,} bytes; {by_ring(pair)}"


def killed_while_stopped(pair):
    """Has the rings that lead to the server fill: it reads nothing. True: that was the client's end."""
    client = pair.processes["client"].popen
    pair.send("server", signal.SIGSTOP)
    with contextlib.suppress(subprocess.TimeoutExpired):
        client.wait(STOPPED_SECONDS)
    pair.send("server", signal.SIGCONT)
    return client.poll() is not None


# --- clocks -----------------------------------------------------------------------------------------------------------

DAY = 24 * 60 * 60


def in_time(seconds):
    """What a process is started inside of, so that its clocks are ahead by so much. (The machine's own clock is left
    alone: nothing of Sidestep asks for the time of day.)"""
    around = ["unshare", "--fork", "--time", f"--monotonic={seconds}", f"--boottime={seconds}"]
    if subprocess.run([*around, "true"], capture_output=True).returncode != 0:
        raise NotTried("time namespaces are not allowed")
    return around


def clocks_that_differ(bench):
    """The two ends and their broker each live at another time."""
    with Scene(bench, "clocks", around_broker=in_time(100 * DAY)) as scene:
        return by_ring(scene.checked_load(around={"client": in_time(DAY), "server": in_time(10_000 * DAY)}))


ROUNDS = (disk_full_for_reports, disk_full_for_the_broker, without_dev_shm, programs_without_proc, nobody_has_proc,
          memory_limit_reached, clocks_that_differ)
