"""Every number of the measurement."""

import fnmatch
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """`rate` in requests a second; 0 for as many as are answered."""

    name: str
    title: str
    rate: int
    #: A connection for each request, between all programs on the way.
    fresh: bool = False
    #: Of so many connections only; None for all that the plan has.
    connections: int | None = None


LOADS = (
    Load("1000", "1,000/s", 1_000),
    Load("1500", "1,500/s", 1_500),
    Load("max", "saturation", 0),
    Load("new", "100 new connections/s", 100, fresh=True, connections=64),
)
BY_NAME = {load.name: load for load in LOADS}


@dataclass(frozen=True)
class Cell:
    """A load on so many connections, with so many rules on the node."""

    rules: int
    load: str
    connections: int

    @property
    def name(self):
        return f"{self.rules}/{self.load}/{self.connections}"

    @property
    def saturated(self):
        return not BY_NAME[self.load].rate


@dataclass(frozen=True)
class Plan:
    #: On the node, beside those that steer.
    rules: tuple = (0, 100_000)
    #: What they are, see rules.py: other Services' rules ("services"), or a firewall's that the first one of each
    #: "connection" looks through, or every "packet".
    walk: str = "services"
    #: What the client's sidecar dials: the "pod", as Istio's does, or the service's address ("vip").
    upstream: str = "pod"
    #: A connection is given up for a new one after so many requests, between all programs on the way.
    requests: int = 100
    loads: tuple = tuple(load.name for load in LOADS)
    connections: tuple = (1, 16, 64, 256)
    #: Patterns of names of cells.
    only: tuple = ("*",)
    #: Of the cells of so many connections, in which all contestants take part; of the others, in which the main ones do.
    rounds: int = 10
    full: int = 64
    main_rounds: int = 8
    #: All contestants take part in all cells.
    everybody: bool = False
    seconds: float = 1.0
    #: Of the order in which contestants take their turns.
    seed: int = 1
    #: Of an Envoy. One each, since four programs share the machine.
    threads: int = 1
    route_timeout: float = 2.0
    #: Of the intervals that verdicts are taken from.
    confidence: float = 0.99
    #: The highest CPU is that of the busiest piece of so many seconds.
    slice: float = 0.1
    #: Requests of the trial that proves the way, one connection each.
    proving: int = 40
    #: Of turns of a contestant, one after another: then it is left out from there on.
    most_failures: int = 3
    #: For the rules of the node, and for an answer of the load generator beyond its time.
    load_limit: float = 300.0
    answer_limit: float = 30.0

    @staticmethod
    def quick():
        return Plan(rounds=1, main_rounds=1, seconds=0.3, loads=("1000", "new"), connections=(1, 64), rules=(0, 1000))

    def rounds_of(self, cell):
        return self.rounds if cell.connections == self.full else self.main_rounds

    def takes_part(self, kind, cell):
        return self.everybody or kind.main or cell.connections == self.full

    def cells(self, rules):
        """Those with so many rules."""
        loads = [BY_NAME[name] for name in self.loads]
        every = [
            Cell(rules, load.name, connections)
            for load in loads
            for connections in ((load.connections,) if load.connections else self.connections)
        ]
        return [cell for cell in every if any(fnmatch.fnmatch(cell.name, each) for each in self.only)]
