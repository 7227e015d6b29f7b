"""Deaths and changes under load, one after the other: no byte is lost, doubled or reordered, no connection of a living program fails,
and all go on. How long they waited is measured."""

import json

from hosts import deeds
from hosts.registry import MORE, case
from hosts.scene import Scene
from testkit.failure import Failure
from testkit.wait import until

CONNECTIONS = 256
SHARE = 64  # of these a host's stack must carry before it is killed, or the round would prove nothing
RENEWED = 128  # connections at a time, if it does not
# Milliseconds. A death lets 99 of 100 connections wait no longer than SLOW, where 99 of 100 wait no longer than QUIET without any; on a
# busier machine, no longer than SLOW beside what they wait there without any. docs/stack.md has 115 for QUIET.
SLOW, QUIET = 250, 125


class Deaths(Scene):
    """`waits`: by kind, for each round how long each of the connections waited that were carried."""

    def __init__(self, hosts, seed):
        super().__init__(hosts, seed, CONNECTIONS)
        self.waits = {}

    def round(self, name, host):
        kind = KINDS[name]
        carried = self.must_carry(host, SHARE, renewed=RENEWED)
        restored = host.restored()
        self.load.mark()
        gaps = self.load.recovered(up=kind.deed(self, host))
        if kind.keeper_restores:
            until(lambda: host.restored() >= restored + SHARE, "the keeper to say what it has given back", 5)
        self.waits.setdefault(name, []).append([1000 * gaps[ports] for ports in self.ports(host, carried) if ports in gaps])

    def run(self, names):
        for number, name in enumerate(names):
            host = self.both[number % 2]  # each has recovered while it is the other's turn
            try:
                self.round(name, host)
            except Failure as failure:
                raise Failure(f"round {number} of {len(names)}, {name!r} at {host.name}: {failure}") from None


class Kind:
    """What happens. `outlived`: by keeper, standby and broker. `keeper_restores`: the worker cannot. `quick`: nobody may wait long."""

    def __init__(self, deed, outlived=True, keeper_restores=False, quick=False):
        self.deed, self.outlived, self.keeper_restores, self.quick = deed, outlived, keeper_restores, quick


def kill_keeper(scene, host):
    deeds.kill_keeper(host)
    scene.start_stack(host)


def kill_keeper_and_worker(scene, host):
    if deeds.kill_keeper_and_worker(host, scene.chosen) < SHARE:
        raise Failure("the standby has not given back what was carried")
    scene.start_stack(host)


def kill_program(scene, host):
    if host is scene.hosts.client:
        scene.load.kill_client()
    else:
        scene.load.kill_server()


def cut_cable(scene, host):
    """Returns when it was mended."""
    return deeds.cut_cable(host, scene.chosen.uniform(0, 0.3))


def change_neighbour(scene, host):
    if scene.chosen.random() < 0.5:
        deeds.forget_neighbour(host, scene.peer(host))
    else:
        deeds.change_link_address(host, "02:00:00" + "".join(f":{scene.chosen.randrange(256):02x}" for _ in range(3)))


KINDS = {
    "worker killed": Kind(lambda _, host: deeds.kill_worker(host), keeper_restores=True, quick=True),
    "keeper killed": Kind(kill_keeper, outlived=False, quick=True),
    "both killed": Kind(kill_keeper_and_worker, outlived=False, quick=True),
    "standby killed": Kind(lambda _, host: deeds.kill_standby(host), quick=True),
    "broker killed": Kind(lambda _, host: deeds.kill_broker(host), outlived=False, quick=True),
    "program killed": Kind(kill_program, quick=True),
    "worker replaced": Kind(lambda _, host: deeds.replace_worker(host), quick=True),
    "device down": Kind(cut_cable),
    "route changed": Kind(lambda scene, host: deeds.change_route(host, scene.peer(host))),
    "neighbour changed": Kind(change_neighbour),
    "nothing": Kind(lambda *_: None),
}


def shuffled(chosen, kinds, rounds):
    """So many rounds, in which no kind comes more often than another."""
    names = []
    while len(names) < rounds:
        names += chosen.sample(kinds, len(kinds))
    return names[:rounds]


def table(waits):
    """Milliseconds that the connections which were carried waited at most, by kind."""
    rows = {}
    for name, rounds in sorted(waits.items()):
        all_of_it = sorted(wait for one in rounds for wait in one)
        if all_of_it:
            at = {f"p{share}": all_of_it[share * (len(all_of_it) - 1) // 100] for share in (50, 99)}
            rows[name] = {"rounds": len(rounds), "connections": len(all_of_it), **at, "max": all_of_it[-1]}
    return rows


def rounds_of_deaths(hosts, seed, rounds, judges_waits):
    """`judges_waits`: of a few rounds on a busy machine they say nothing."""
    rounds = hosts.rounds or rounds
    scene = Deaths(hosts, seed)
    # Some that keeper and broker outlive come last: in these something could gather.
    last = rounds // 5
    outlived = [name for name, kind in KINDS.items() if kind.outlived]
    try:
        scene.run(shuffled(scene.chosen, list(KINDS), rounds - last) + shuffled(scene.chosen, outlived, last))
    finally:
        rows = table(scene.waits)
        hosts.figures = {"seed": seed, "milliseconds": rows}
        for name, row in rows.items():
            print(f"figure: {name:18} {row['rounds']:4} rounds {row['connections']:6} waits: p50 {row['p50']:4.0f} "
                  f"p99 {row['p99']:5.0f} max {row['max']:5.0f} ms", flush=True)
    scene.end()
    if judges_waits:
        must_be_short(rows)


def must_be_short(rows):
    usual = rows["nothing"]["p99"]
    limit = SLOW if usual <= QUIET else usual + SLOW
    slow = {name: round(row["p99"]) for name, row in rows.items() if KINDS[name].quick and row["p99"] >= limit}
    if slow:
        raise Failure(f"1 of 100 connections waited longer than {limit:.0f} ms: {json.dumps(slow)}; with no death {usual:.0f} ms")


@case
def deaths(hosts, seed):
    rounds_of_deaths(hosts, seed, 20, False)


@case(part=MORE)
def many_deaths(hosts, seed):
    rounds_of_deaths(hosts, seed, 500, True)
