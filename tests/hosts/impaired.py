"""A bad wire: the same bytes as on a good one, and never slower than the kernel."""

from concurrent.futures import ThreadPoolExecutor
from statistics import median

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
TURNS = 5
# Connections that last some seconds: each time that one is taken again costs it some 30 ms.
LONG = "--connections", "32", "--rounds", "120"
SHORT_DELAY, LONG_ON_A_SHORT_WIRE = 500, ("--connections", "32", "--rounds", "2500")


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


def never_slower(race, seed, name, rates, load, least):
    """The median of a fixed number of turns: whoever ends at the first good one ends with a lucky one."""
    ratios = [turn(race, str(int(seed) + number), rates, load) for number in range(TURNS)]
    ratio = median(ratios)
    print(f"figure: {name}: {ratio:.3f} of the kernel's speed, of turns with {', '.join(f'{one:.3f}' for one in ratios)}", flush=True)
    if ratio < least:
        raise Failure(f"{name}: by stack {ratio:.3f} of the kernel's speed")


def turn(race, seed, rates, load):
    """The same harm to the same bytes, by the kernel and by the stack, at the same time. Returns the stack's speed beside the kernel's."""
    for host in (race.stacks.client, race.stacks.server):
        host.start_stack()
    with ThreadPoolExecutor(2) as pool:
        by_kernel, by_stack = pool.map(lambda hosts: harmed(hosts, seed, rates, *load), (race.kernel, race.stacks))
    for host in (race.stacks.client, race.stacks.server):
        must_have_taken(host, 30)
    return by_kernel / by_stack


def list_case(name, rates, load=LONG, least=LEAST):
    def run(race, seed):
        never_slower(race, seed, name, rates, load, least)
    run.__name__ = f"never_slower_under_{name}"
    case(run, bed=Race, part=MORE)


for name, rates in HARMS.items():
    list_case(name, {"delay": DELAY, **rates})
list_case("everything", {**ALL, "delay": DELAY})
# LEAST is missed on it (docs/stack.md, Limits).
list_case("loss_on_a_short_wire", {"delay": SHORT_DELAY, "lose": 50}, LONG_ON_A_SHORT_WIRE, least=0.9)
