"""A bad wire: the same bytes as on a good one, and never slower than the kernel."""

from concurrent.futures import ThreadPoolExecutor

from hosts.cases import exchanged, must_have_taken
from hosts.registry import MORE, case
from hosts.wire import Race, WiredHosts
from testkit.failure import Failure

# Segments of 10,000. Microseconds each way: as far as another continent, so that the processor time of the wire does not count.
DELAY = 40_000
HARMS = {
    "nothing": {}, "loss": {"lose": 50}, "duplicates": {"double": 100}, "reordering": {"reorder": 100}, "damage": {"damage": 50},
    "truncation": {"cut": 50}, "jitter": {"jitter": 10_000},
}
ALL = {"lose": 40, "double": 50, "reorder": 50, "damage": 40, "cut": 40, "delay": 500, "jitter": 300}
COUNTS = {"lose": "lost", "double": "doubled", "reorder": "reordered", "damage": "damaged", "cut": "cut"}
LEAST = 0.97  # of the kernel's speed
TURNS = 4
# Connections that last some seconds: each time that one is taken again costs it some 30 ms.
LONG = "--connections", "32", "--rounds", "120"


def harmed(hosts, seed, rates, *options):
    """Seconds that the client's connections took on this wire."""
    hosts.wire.start(seed, rates)
    exchanged(hosts, *options, "--seed", seed)
    done = hosts.wire.stop()
    missing = [rate for rate in rates if rate in COUNTS and not done[COUNTS[rate]]]
    if missing:
        raise Failure(f"the wire was too good: nothing for {missing} in {done}")
    return hosts.said["seconds"]


@case(bed=WiredHosts)
def a_bad_wire(hosts, seed):
    """Every byte is compared; each harm must have been done."""
    for host in (hosts.client, hosts.server):
        host.start_stack()
    harmed(hosts, seed, ALL, "--connections", "16", "--rounds", "120")
    for host in (hosts.client, hosts.server):
        must_have_taken(host, 16)


def never_slower(race, seed, name, rates):
    """The same harm to the same bytes, at the same time. A busy machine gets more turns."""
    seconds = [0, 0]
    for turn in range(TURNS):
        for host in (race.stacks.client, race.stacks.server):
            host.start_stack()
        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda hosts: harmed(hosts, str(int(seed) + turn), {"delay": DELAY, **rates}, *LONG),
                                 (race.kernel, race.stacks)))
        for host in (race.stacks.client, race.stacks.server):
            must_have_taken(host, 30)
        seconds = [sum(both) for both in zip(seconds, done)]
        ratio = seconds[0] / seconds[1]
        print(f"figure: {name}: {ratio:.3f} of the kernel's speed", flush=True)
        if ratio >= LEAST:
            return
    raise Failure(f"{name}: by stack {ratio:.3f} of the kernel's speed")


def list_case(name, rates):
    def run(race, seed):
        never_slower(race, seed, name, rates)
    run.__name__ = f"never_slower_under_{name}"
    case(run, bed=Race, part=MORE)


for name, rates in HARMS.items():
    list_case(name, rates)
