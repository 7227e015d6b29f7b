"""Many Services at once, and one change among them: how long each world takes to apply it, and what that costs."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from kube import addresses as at
from kube.marker import Marker
from kube.objects import namespace, ready_slice, service
from testkit import procfs
from testkit.console import say
from testkit.failure import Failure

NAMESPACE = "scale"
# Services and endpoints of each.
SIZE, QUICK_SIZE = (1000, 50), (100, 20)
# One in this many Services has real endpoints.
REAL_EVERY = 50
CHANGES, QUICK_CHANGES = 15, 5
LOAD_SECONDS = 300
CHANGE_SECONDS = 60
# Pause between two changes: kube-proxy writes its rules once a second at most, and that is not to be measured.
PAUSE_SECONDS = 2.0
# Probes of real endpoints: enough that none of twelve is missed.
TIMES = 240


def run(testbed, options, checks):
    size = QUICK_SIZE if options.quick else SIZE
    api = testbed.control_plane.api
    marker = Marker(api, "feed-marker")
    api.create(namespace(NAMESPACE))
    checks.figures["services"], checks.figures["endpoints"] = size
    services = load(testbed, size, marker, checks)
    real = services[::REAL_EVERY]
    compare(testbed, real, checks, "after loading")
    restart(testbed, real[0], marker, checks)
    compare(testbed, real, checks, "after a new start")
    change(testbed, real[0], QUICK_CHANGES if options.quick else CHANGES, checks)
    account(testbed, checks)


def load(testbed, size, marker, checks):
    """Writes all Services, as fast as the API server accepts them."""
    count, endpoints = size
    api = testbed.control_plane.api
    cpu = {world.kind: procfs.cpu_seconds(world.services.pid) for world in testbed.worlds}
    started = time.monotonic()
    services = api.each(lambda number: create(api, number, endpoints), range(count))
    written = time.monotonic() - started
    took = marker.wait(testbed.worlds, LOAD_SECONDS)
    say(f"feed: {count} Services with {endpoints} endpoints each written in {written:.1f} s")
    for world in testbed.worlds:
        used = procfs.cpu_seconds(world.services.pid) - cpu[world.kind]
        checks.figures[f"{world.kind}: loaded, seconds after the last write"] = round(took[world.kind], 3)
        checks.figures[f"{world.kind}: loaded, processor seconds"] = round(used, 2)
        say(f"feed: {world.kind} had all of them {took[world.kind]:.2f} s after the last was written, "
            f"with {used:.2f} s of processor time")
    return services


def create(api, number, count):
    made = api.create(service(NAMESPACE, f"s{number}"))
    if number % REAL_EVERY == 0:
        api.create(ready_slice(made, at.backends(4), at.BACKEND_PORTS[0]))
    else:
        api.create(ready_slice(made, [unreal(number * count + i) for i in range(count)], at.BACKEND_PORTS[0]))
    return made


def unreal(number):
    """Address of an endpoint that no probe uses."""
    return f"10.{128 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def address_of(one):
    return one["spec"]["clusterIPs"][0]


def compare(testbed, real, checks, when):
    """All real endpoints answer, and no others."""
    wanted = {at.endpoint(address, at.BACKEND_PORTS[0]) for address in at.backends(4)}
    probes = [{"how": "tcp", "host": address_of(one), "port": 80, "times": TIMES} for one in real]
    for world in testbed.worlds:
        for one, seen in zip(real, world.probe("pod", probes)):
            checks.check(set(seen) == wanted, f"{world.kind}: {one['metadata']['name']} {when}: saw "
                                              f"{sorted(seen)}, expected {sorted(wanted)}")


def restart(testbed, one, marker, checks):
    """Start without state: how long a new node takes to apply all Services."""
    for world in testbed.worlds:
        world.end_services()
        world.clear_services()
        seen = world.probe("pod", [{"how": "tcp", "host": address_of(one), "port": 80, "times": 1}])[0]
        checks.check("timeout" in seen, f"{world.kind}: all was cleared away, and a Service still answers: {seen}")
    mark = marker.set()
    for world in testbed.worlds:
        started = time.monotonic()
        world.start_services()
        seconds = marker.wait_for(world, mark, LOAD_SECONDS) - started
        checks.figures[f"{world.kind}: seconds from its start until all are served"] = round(seconds, 3)
        say(f"feed: {world.kind} serves all of them {seconds:.2f} s after its start")
    marker.remove(mark)


def change(testbed, one, count, checks):
    """One Service gets another endpoint. The clock runs from before the write until a connection arrives there."""
    api, took = testbed.control_plane.api, {world.kind: [] for world in testbed.worlds}
    probe = {"how": "tcp", "host": address_of(one), "port": 80}
    for number in range(count):
        time.sleep(PAUSE_SECONDS)
        port = at.BACKEND_PORTS[(number + 1) % len(at.BACKEND_PORTS)]
        piece = ready_slice(one, [at.HERE[4][0]], port)
        with ThreadPoolExecutor(len(testbed.worlds)) as threads:
            waiting = {world.kind: threads.submit(world.await_outcome, probe, at.endpoint(at.HERE[4][0], port),
                                                  CHANGE_SECONDS) for world in testbed.worlds}
            started = time.monotonic()
            api.replace(piece)
            for kind, future in waiting.items():
                seen = future.result()
                checks.check(seen is not None, f"{kind}: a changed endpoint is not used after {CHANGE_SECONDS} s")
                took[kind].append((seen or started + CHANGE_SECONDS) - started)
    for kind, seconds in took.items():
        figure = {"median": statistics.median(seconds), "least": min(seconds), "most": max(seconds)}
        checks.figures[f"{kind}: one changed endpoint, seconds"] = {k: round(v, 4) for k, v in figure.items()}
        say(f"feed: {kind} uses a changed endpoint after {figure['median'] * 1000:.0f} ms "
            f"({figure['least'] * 1000:.0f} to {figure['most'] * 1000:.0f})")


def account(testbed, checks):
    """The memory of each world's process when it has applied all Services."""
    for world in testbed.worlds:
        kib = resident_kib(world.services.pid)
        checks.figures[f"{world.kind}: resident MiB"] = round(kib / 1024, 1)
        say(f"feed: {world.kind} has {kib / 1024:.0f} MiB of memory")


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise Failure(f"/proc/{pid}/status has no VmRSS")
