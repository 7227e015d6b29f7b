"""The API server is killed and comes back, under load: nothing changes meanwhile; afterwards every change is applied.

The second time Sidestep's agent is restarted meanwhile: it must not change entries without newer information.
"""

import json
import subprocess
import sys
import time

from kube import addresses as at
from kube.differences import SIDESTEP
from kube.marker import Marker
from kube.objects import namespace, ready_slice, service
from kube.worlds import PEERS
from testkit import wait
from testkit.console import say
from testkit.failure import Failure

NAMESPACE = "outage"
AWAY_SECONDS, QUICK_AWAY_SECONDS = 20, 4
# Clients that watch retry after growing pauses, up to half a minute and more.
BACK_SECONDS = 120
# Time from the first applied change until all are applied.
SETTLE_SECONDS = 30
STOP_SECONDS = 30
BEFORE, AFTER = at.BACKEND_PORTS[0], at.BACKEND_PORTS[1]
TIMES = 100


def run(testbed, options, checks):
    api = testbed.control_plane.api
    marker = Marker(api, "outage-marker")
    api.create(namespace(NAMESPACE))
    for name, with_restart in (("watching", False), ("restarted", True)):
        services = {role: make(api, f"{name}-{role}", BEFORE) for role in ("kept", "changed", "gone")}
        marker.wait(testbed.worlds)
        one_outage(testbed, options, name, services, with_restart, marker, checks)


def one_outage(testbed, options, name, services, with_restart, marker, checks):
    loads = []
    try:
        for world in testbed.worlds:
            loads.append(Load(world, [address_of(services[role]) for role in ("kept", "changed")]))
        testbed.control_plane.kill_api_server()
        say(f"outage {name}: the API server is killed")
        if with_restart:
            restart_agents(testbed)
        away(testbed, options, services.values(), checks)
        testbed.control_plane.start_api_server()
        say(f"outage {name}: the API server is back")
        back(testbed, name, services, marker, checks)
        tell(name, loads, checks)
    finally:
        for load in loads:
            load.kill()


def make(api, name, port):
    made = api.create(service(NAMESPACE, name))
    api.create(ready_slice(made, at.HERE[4], port))
    return made


def address_of(one):
    return one["spec"]["clusterIPs"][0]


def away(testbed, options, services, checks):
    """Probes are answered as before, by all backends."""
    deadline = time.monotonic() + (QUICK_AWAY_SECONDS if options.quick else AWAY_SECONDS)
    while time.monotonic() < deadline:
        for world in testbed.worlds:
            for one in services:
                seen = meets(world, one)
                checks.check(seen == backends(BEFORE), f"{world.kind}: without the API server "
                                                       f"{one['metadata']['name']} is served by {sorted(seen)}")


def restart_agents(testbed):
    """Only for the agent: how kube-proxy starts without an API server is not tested."""
    for world in testbed.worlds:
        if world.kind == SIDESTEP:
            world.end_services()
            world.start_services()
            say("outage: Sidestep's agent has been ended and started again meanwhile")


def back(testbed, name, services, marker, checks):
    """Changes are applied now: a changed endpoint, a removed Service, a new Service."""
    api, changed, gone = testbed.control_plane.api, services["changed"], services["gone"]
    api.replace(ready_slice(changed, at.HERE[4], AFTER))
    api.delete(gone)
    for kind, seconds in marker.wait(testbed.worlds, BACK_SECONDS).items():
        checks.figures[f"{name}: {kind}: seconds from the return until changes are seen"] = round(seconds, 2)
        say(f"outage {name}: {kind} has taken up the changes {seconds:.1f} s after the API server's return")
    for world in testbed.worlds:
        seen = settled(world, changed, lambda seen: seen == backends(AFTER))
        checks.check(seen == backends(AFTER), f"{world.kind}: after the return a changed Service is served by {seen}")
        seen = settled(world, gone, lambda seen: not seen & backends(BEFORE))
        checks.check(not seen & backends(BEFORE),
                     f"{world.kind}: after the return a Service that is gone is served by {seen}")


def settled(world, one, is_right):
    """The backends that serve it, once they are right or the time is over: the list that is read after an outage has no
    order, so the marker may be seen before objects that were written before it."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while not is_right(seen := meets(world, one)) and time.monotonic() < deadline:
        time.sleep(wait.POLL_SECONDS)
    return seen


def backends(port):
    return {at.endpoint(address, port) for address in at.HERE[4]}


def meets(world, one):
    probe = {"how": "tcp", "host": address_of(one), "port": 80, "times": TIMES}
    return set(world.probe("pod", [probe])[0])


def tell(name, loads, checks):
    for load in loads:
        counts = load.end()
        failures = counts["failures"]
        checks.check(not failures, f"{name}: {load.kind}: {len(failures)} of {counts['connections']} connections and "
                                   f"{counts['exchanges']} exchanges failed: {'; '.join(failures[:5])}")
        checks.check(counts["connections"] > 0, f"{name}: {load.kind}: the load has made no connection")
        checks.figures[f"{name}: {load.kind}: load"] = {**counts, "failures": len(failures)}
        say(f"outage {name}: {load.kind}: {counts['connections']} connections and {counts['exchanges']} exchanges on "
            f"kept ones, {len(failures)} failed")


class Load:
    """Continuous connections from a pod."""

    def __init__(self, world, ips):
        self.kind = world.kind
        words = [sys.executable, str(PEERS / "load.py"), *(at.endpoint(ip, 80) for ip in ips)]
        self.popen = subprocess.Popen(world.namespaces["pod"].around(world.around(words)), stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, env=world.env, text=True, start_new_session=True)
        if self.popen.stdout.readline() != "ready\n":
            self.kill()
            raise Failure(f"{self.kind}: the load cannot begin; its complaint is above")

    def end(self):
        return json.loads(self.popen.communicate(timeout=STOP_SECONDS)[0])

    def kill(self):
        self.popen.kill()
        self.popen.wait()
