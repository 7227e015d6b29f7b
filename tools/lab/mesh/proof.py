"""Whether requests really take the way they should: the sidecars are asked before and after some of them."""

from dataclasses import dataclass

from ..errors import LabError
from . import turn
from .envoy import INBOUND, OUTBOUND, VIRTUAL_INBOUND, cluster
from .settings import PORT

SECONDS = 0.2
#: What it is called in the tables -> whose counter, and which.
COUNTERS = {
    "client's sidecar": ("client", f"http.{OUTBOUND}.downstream_rq_total"),
    "server's sidecar": ("server", f"http.{INBOUND}.downstream_rq_total"),
    "allowed": ("server", f"http.{INBOUND}.rbac.allowed"),
    "denied": ("server", f"http.{INBOUND}.rbac.denied"),
    "handshakes": ("server", f"listener.{VIRTUAL_INBOUND}.ssl.handshake"),
    "handshakes of the client's": ("client", f"cluster.{cluster(OUTBOUND, PORT)}.ssl.handshake"),
}
PASSED = ("client's sidecar", "server's sidecar", "allowed")


@dataclass(frozen=True)
class Proof:
    requests: int
    #: Of COUNTERS, by how much each grew; nothing where there are no sidecars.
    counts: dict
    #: By what else something went, and how many bytes more it was: rings (of the load generator), splicing.
    moved: dict


def prove(mesh):
    """An error if a request took another way than the contestant's."""
    before, moved_before = counts(mesh), mesh.contestant.moved()
    number = mesh.plan.proving
    answers = [turn.run(mesh, number, number / SECONDS, SECONDS, fresh) for fresh in (False, True)]
    after, moved = counts(mesh), mesh.contestant.moved()
    requests = sum(answer["warm_up"] + answer["answered"] for answer in answers)
    # Connections are kept: what was shaken hands over has been so for some.
    grown = {name: after[name] - (0 if name.startswith("handshakes") else before[name]) for name in after}
    proof = Proof(requests, grown, {way: count - moved_before[way] for way, count in moved.items()})
    failed = sum(answer["failed"] + answer["unanswered"] for answer in answers)
    if why := wrong(proof, mesh.kind, failed):
        raise LabError(f"{mesh.title}: {why}: {proof}")
    return proof


def counts(mesh):
    stats = {role: sidecar.stats() for role, sidecar in mesh.sidecars.items()}
    return {name: stats[role].get(stat, 0) for name, (role, stat) in COUNTERS.items() if stats}


def wrong(proof, kind, failed):
    """What does not fit; None if all is as it should be."""
    counts, led = proof.counts, proof.requests if kind.led else 0
    if failed:
        return f"{failed} requests failed"
    if any(counts[name] != led for name in PASSED if counts):
        return f"not {led:,} requests went through both sidecars"
    if kind.led and not (counts["handshakes"] and counts["handshakes of the client's"]):
        return "no mTLS between the sidecars"
    if counts.get("denied"):
        return "requests were denied"
    still = [way for way, count in proof.moved.items() if not count]
    return f"nothing went {still[0]}" if still else None
