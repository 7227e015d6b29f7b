"""Tells when a node has taken up everything that was written so far.

Watches keep the order of what they tell. So a Service with an endpoint that are written last are seen last, and who
serves them has seen all that came before. Each family has an endpoint of its own, since kube-proxy has rules for each.
"""

import time

import addresses as at
from objects import namespace, ready_slice, service
from support import wait
from support.failure import Failure

PORT = 80
# Who does not answer at once is asked again.
PATIENCE_SECONDS = 0.2


class Marker:
    def __init__(self, api, name):
        self.api = api
        self.name = name
        self.number = 0
        api.create(namespace(name))

    def wait(self, worlds, seconds=90):
        """Until all of them know; how many seconds each has taken."""
        clock = time.monotonic()
        mark = self.set()
        took = {}
        while len(took) < len(worlds):
            for world in worlds:
                world.must_run()
                if world.kind not in took and self.is_seen(world, mark):
                    took[world.kind] = time.monotonic() - clock
            if time.monotonic() - clock > seconds:
                waiting = ", ".join(world.kind for world in worlds if world.kind not in took)
                raise Failure(f"{waiting}: a Service that was written {seconds} s ago is not served; "
                              f"run with --keep for the logs of what implements it")
            time.sleep(wait.POLL_SECONDS)
        self.remove(mark)
        return took

    def set(self):
        """A new Service and its slices. The port tells it from an earlier one that had the same address."""
        self.number += 1
        port = at.BACKEND_PORTS[self.number % len(at.BACKEND_PORTS)]
        made = self.api.create(service(self.name, f"m{self.number}", ipFamilyPolicy="RequireDualStack"))
        slices = [self.api.create(ready_slice(made, [at.HERE[family][0]], port, family)) for family in (4, 6)]
        return made, slices

    def remove(self, mark):
        made, slices = mark
        for thing in (made, *slices):
            self.api.delete(thing)

    def is_seen(self, world, mark):
        made, slices = mark
        ips = {6 if ":" in ip else 4: ip for ip in made["spec"]["clusterIPs"]}
        probes = [{"how": "tcp", "host": ip, "port": PORT, "times": 1} for ip in ips.values()]
        port = slices[0]["ports"][0]["port"]
        wanted = [{at.endpoint(at.HERE[family][0], port): 1} for family in ips]
        return world.probe("pod", probes, PATIENCE_SECONDS) == wanted

    def wait_for(self, world, mark, seconds):
        wait.until(lambda: self.is_seen(world, mark), f"{world.kind} to serve everything", seconds,
                   world.services.must_run)
