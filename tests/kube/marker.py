"""Finds out when a node has applied everything that was written so far.

Watches keep the order of what they tell. So a Service with an endpoint that are written last are seen last, and who
serves them has seen all that came before. Each family has an endpoint of its own, since kube-proxy has rules for each.
"""

import time
from concurrent.futures import ThreadPoolExecutor

from kube import addresses as at
from kube.objects import namespace, ready_slice, service
from testkit.failure import Failure

PORT = 80
# Seconds between checks that the processes still run.
LOOK_SECONDS = 5


class Marker:
    def __init__(self, api, name):
        self.api = api
        self.name = name
        self.number = 0
        api.create(namespace(name))

    def wait(self, worlds, seconds=90):
        """Waits until all worlds have applied it; returns the seconds from this call for each world."""
        started = time.monotonic()
        mark = self.set()
        with ThreadPoolExecutor(len(worlds)) as threads:
            waiting = {world.kind: threads.submit(self.wait_for, world, mark, seconds) for world in worlds}
        took = {kind: future.result() - started for kind, future in waiting.items()}
        self.remove(mark)
        return took

    def set(self):
        """A new Service and its slices. Its port distinguishes it from an earlier one that had the same address."""
        self.number += 1
        port = at.BACKEND_PORTS[self.number % len(at.BACKEND_PORTS)]
        made = self.api.create(service(self.name, f"m{self.number}", ipFamilyPolicy="RequireDualStack"))
        slices = [self.api.create(ready_slice(made, [at.HERE[family][0]], port, family)) for family in (4, 6)]
        return made, slices

    def remove(self, mark):
        made, slices = mark
        for thing in (made, *slices):
            self.api.delete(thing)

    def wait_for(self, world, mark, seconds):
        """The time at which a program in the world's pod has reached the endpoints of both families."""
        made, slices = mark
        port = slices[0]["ports"][0]["port"]
        deadline = time.monotonic() + seconds
        seen = []
        for ip in made["spec"]["clusterIPs"]:
            family = 6 if ":" in ip else 4
            probe = {"how": "tcp", "host": ip, "port": PORT}
            seen.append(self.meet(world, probe, at.endpoint(at.HERE[family][0], port), deadline))
        return max(seen)

    def meet(self, world, probe, wanted, deadline):
        while time.monotonic() < deadline:
            world.must_run()
            seen = world.await_outcome(probe, wanted, LOOK_SECONDS)
            if seen is not None:
                return seen
        raise Failure(f"{world.kind}: a Service that was written last is not served in time; run with --keep for the "
                      f"logs of what implements it:\n{world.services.tail()}")
