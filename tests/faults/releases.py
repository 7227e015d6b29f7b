"""Rounds in which two releases meet that speak different versions of the protocol, one after the other: all goes by ring. Each is a
function of the bench that returns what is to be told."""

import os
import subprocess
from pathlib import Path

from faults.rounds import SLOW_SECONDS, SOME_BYTES
from faults.scene import Scene, by_ring
from testkit import paths
from testkit.failure import check
from testkit.sidestep import Sidestep

# A directory with the programs of another release, such as of a tag, in place of these sources' next one.
GIVEN = os.environ.get("SIDESTEP_TEST_RELEASE")


def next_release():
    """The programs of a release that speaks the next version of the protocol."""
    if GIVEN:
        return paths.built("release", "libsidestep.so", "sidestepd", "sidestep", directory=Path(GIVEN).resolve())
    target = paths.TARGET / "next"
    env = {**os.environ, "CARGO_TARGET_DIR": str(target), "RUSTFLAGS": "--cfg sidestep_next"}
    packages = ("sidestep-preload", "sidestep-broker", "sidestep-cli")
    command = ["cargo", "build", "--release", "--quiet", *(word for package in packages for word in ("-p", package))]
    subprocess.run(command, cwd=paths.ROOT, env=env, check=True, stdin=subprocess.DEVNULL)
    return target / "release"


def releases(scene):
    """Both releases with the scene's broker: (this, next)."""
    name = scene.layer.broker
    return Sidestep(name), Sidestep(name, bin_dir=next_release())


def programs_beside_the_next_broker(bench):
    """Programs of this release, a broker of the next: it has been upgraded first."""
    with Scene(bench, "next-broker", bin_dir=next_release()) as scene:
        this, _ = releases(scene)
        return by_ring(scene.checked_load(layers=scene.both(this)))


def newer_programs_beside_this_broker(bench):
    """Programs of the next release, a broker of this one: it is still to be upgraded."""
    with Scene(bench, "this-broker") as scene:
        _, following = releases(scene)
        return by_ring(scene.checked_load(layers=scene.both(following)))


def two_programs_of_two_releases(bench):
    """One end of each release, with either broker."""
    told = []
    for number, bin_dir in enumerate((None, next_release())):
        with Scene(bench, f"mixed-{number}", bin_dir=bin_dir) as scene:
            layers = dict(zip(("client", "server"), releases(scene)))
            told.append(by_ring(scene.checked_load(layers=layers)))
            scene.checked_load()  # the broker serves its own release as ever
            check(scene.pairs[-1].ring_bytes() > 0, f"its own release has no ring: {scene.pairs[-1].reports()}")
    return "; ".join(told)


def the_next_broker_takes_over(bench):
    """Connections that this broker has upgraded go on by ring beside a broker of the next release, and so do new ones."""
    with Scene(bench, "take-over") as scene:
        this, following = releases(scene)
        old = scene.pair(layers=scene.both(this))
        old.wait_bytes(SOME_BYTES, "under this broker", SLOW_SECONDS)
        this.stop_brokers()
        following.start_broker()
        old.wait_bytes(SOME_BYTES, "beside the next broker", SLOW_SECONDS)
        told = by_ring(scene.checked_load(layers=scene.both(this)))
        old.finish()
        return f"old connections: {by_ring(old)}; new ones: {told}"


ROUNDS = (programs_beside_the_next_broker, newer_programs_beside_this_broker, two_programs_of_two_releases,
          the_next_broker_takes_over)
