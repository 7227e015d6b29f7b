"""Makes the calls in a world: the result of each, and whether it could be read on the wire."""

import re

from testkit.failure import Failure

from . import places
from .calls import AS_USUAL, NODE, WITH_SIDECAR_AGAIN, WITHOUT_SIDECAR
from .wire import mark

PATIENCE_SECONDS = 10
IDENTITY = re.compile(r"URI=([^;,]+)")


def run(world):
    """The result of each call, by its name."""
    seen = make(world, AS_USUAL)
    sidecar = world.pods[places.CLIENT.name].sidecar
    sidecar.stop()
    seen |= make(world, WITHOUT_SIDECAR)
    sidecar.start()
    sidecar.await_ready()
    return seen | make(world, WITH_SIDECAR_AGAIN)


def make(world, calls):
    services = {thing["metadata"]["name"]: thing["spec"]["clusterIP"]
                for thing in world.control_plane.api.list("Service", places.NAMESPACE)}
    seen = {}
    for call in calls:
        own = mark()
        request = {"kind": call.kind, "host": address(call.to, services, world), "port": call.port, "path": call.path,
                   "called": call.called, "mark": own, "times": call.times, "patience": PATIENCE_SECONDS}
        caller = world.caller if call.who == NODE else world.pods[call.who].caller
        answer = caller.ask(request)
        marks = world.wire.marks()
        if marks - {own}:
            raise Failure(f"{world.kind}: {call.name}: there was something of an earlier call on the wire")
        # The address of a Service is replaced by its name, since the API server chooses the address.
        named = {address: name for name, address in services.items()}
        answer["outcomes"] = [named.get(outcome, outcome) for outcome in answer["outcomes"]]
        # Likewise that of a pod where it is chosen for it.
        expected = {world.address_of(place): place.address for place in places.PLACES.values()}
        for one in answer["answers"]:
            one["source"] = expected.get(one["source"], one["source"])
        seen[call.name] = sight(answer, own in marks)
    return seen


def address(to, services, world):
    if isinstance(to, places.Place):
        return world.address_of(to)
    return services[to[1]] if isinstance(to, tuple) else to


def sight(answer, is_plain):
    """A result that can be compared with the expected one, and with another world's."""
    answers = answer["answers"]
    return {"outcomes": sorted(set(answer["outcomes"])), "by": sorted({one["name"] for one in answers}),
            "sources": sorted({one["source"] for one in answers}),
            "identities": sorted({uri for one in answers for uri in IDENTITY.findall(one["identity"])}),
            "plain": is_plain}


def expected(call):
    return {"outcomes": [call.outcome], "by": sorted(call.by), "sources": [call.source] if call.by else [],
            "identities": [call.identity] if call.identity else [], "plain": call.plain}


def is_right(call, seen):
    wanted = expected(call)
    if call.is_one and len(seen["by"]) == 1 and seen["by"][0] in call.by:
        wanted["by"] = seen["by"]
    return seen == wanted
