"""One contestant in a cluster of its own: the pods answer, the client dials."""

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import LabError
from ..netns import NETNS, inside, undisturbed
from ..talk import Talk
from . import workload
from .cluster import Cluster
from .programs import account

PROGRAM = "sidestep-bench"
NANOSECONDS = 1e9
#: Client and pods go before whatever else runs on the machine, which would be in the figures otherwise.
NICE = "-10"


@dataclass
class Change:
    """Seconds from the beginning of a change until its command was done, and until the new pod answered."""

    applied: float
    seen: float


@dataclass
class Results:
    #: Seconds; None where there is nothing to load, or where it took too long.
    load: float | None = None
    #: Loading took too long: the Services that are not dialled are there without their endpoints.
    hollow: bool = False
    changes: list = field(default_factory=list)
    #: What the client answered, one of each a round. `first` and `last` only of some rounds.
    short: list = field(default_factory=list)
    keep: list = field(default_factory=list)
    first: list = field(default_factory=list)
    last: list = field(default_factory=list)
    #: What BPF programs did, if there are any.
    programs: list = field(default_factory=list)


class Trial:
    def __init__(self, kind, lab, places, plan, load):
        self.kind, self.lab, self.places, self.plan, self.load = kind, lab, places, plan, load
        self.name, self.title = kind.name, kind.title
        self.results = Results()
        self._open = contextlib.ExitStack()

    def __enter__(self):
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with undisturbed():
            self._open.close()

    def _begin(self):
        label = f"{self.name}{self.load.size}"
        cluster = self._cluster = self._open.enter_context(Cluster(label, self.load.pods))
        self._contestant = self.kind(self.lab, self.places, self.plan, cluster, self.load)
        self._open.callback(self._contestant.close)
        cpu = measured_cpu()
        pinned = ["nice", "-n", NICE, "taskset", "--cpu-list", str(cpu), self.places.built(PROGRAM)]
        names = ",".join(str(NETNS / name) for name in cluster.pods.values())
        argv = [*pinned, "pods", "--port", str(workload.TARGET_PORT), "--namespaces", names]
        # Both are in the cgroup, as all pods of a node are in one that Sidestep is attached to.
        pods = self._talk(f"{label}-pods", argv, preexec_fn=cluster.join)
        if pods.line(self.plan.answer_limit) != "ready":
            raise LabError(f"{self.title}: the pods are not ready")
        watched = f"{pods.popen.pid},{ksoftirqd(cpu)}"
        argv = inside(cluster.client, [*pinned, "dial", "--watch", watched])
        self._client = self._talk(f"{label}-client", argv, preexec_fn=cluster.join)

    def _talk(self, name, argv, **options):
        talk = Talk(self.lab, name, argv, **options)
        self._open.callback(talk.stop)
        return talk

    def fill(self):
        self.results.load = self._contestant.fill()
        self.results.hollow = self._contestant.hollow
        self.short(self.load.middle)

    def short(self, service):
        """New connections, one request each."""
        return self._dial("short", self.plan.short_seconds, service)

    def keep(self, service):
        """Requests on one connection."""
        return self._dial("keep", self.plan.keep_seconds, service)

    def _dial(self, what, seconds, service):
        line = f"{what} {seconds} {self._contestant.targets(service)}"
        return self._client.ask(line, seconds + self.plan.answer_limit)

    def account(self):
        """The work of BPF programs for a connection."""
        def dial():
            return self.short(self.load.middle)["whole"]["units"]
        self.results.programs = account(self._cluster.cgroup, dial)

    def change(self, old, new):
        """One endpoint of the Service is exchanged, while the client waits for the new one to answer."""
        prepared = self._contestant.prepare(old, new)
        (come,) = set(new.endpoints) - set(old.endpoints)
        limit = self.plan.change_limit
        self._client.tell(f"await {limit} {self.load.pods.index(come)} {new.target}")
        if self._client.line(limit) != "waiting":
            raise LabError(f"{self.title}: {come} answers before it is an endpoint")
        begin = time.monotonic()
        self._contestant.apply(prepared)
        applied = time.monotonic() - begin
        answered = self._client.answer(limit + self.plan.answer_limit)
        self.results.changes.append(Change(applied, answered["at_ns"] / NANOSECONDS - begin))


def measured_cpu():
    """Client and pods share one processor: then what an operation takes is what it costs."""
    return max(os.sched_getaffinity(0))


def ksoftirqd(cpu):
    """The thread that takes over soft interrupts when there are many."""
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text(encoding="utf-8").strip() == f"ksoftirqd/{cpu}":
                return int(path.parent.name)
    raise LabError(f"no thread ksoftirqd/{cpu} in /proc (is this a PID namespace of a container?)")
