"""All contestants in turn, one number of rules after the other."""

import contextlib
import random
from dataclasses import dataclass, field

from ..errors import LabError
from ..interleave import Progress
from . import proof, turn
from .mesh import Mesh


@dataclass
class Results:
    #: (cell, contestant) -> one turn a round, None for one that has failed.
    turns: dict = field(default_factory=dict)
    #: (rules, contestant) -> Proof
    proofs: dict = field(default_factory=dict)
    #: (contestant, rules or None for all) -> why there are no figures.
    absent: dict = field(default_factory=dict)

    #: (contestant, cell, number of the round, why)
    failures: list = field(default_factory=list)

    def of(self, cell, name):
        return self.turns.get((cell, name), [])

    @property
    def cells(self):
        return list(dict.fromkeys(cell for cell, _ in self.turns))


class Rounds:
    def __init__(self, lab, places, plan, kinds):
        self.lab, self.places, self.plan, self.kinds = lab, places, plan, kinds
        self.results = Results()
        self._order = random.Random(plan.seed)
        every = [cell for count in plan.rules for cell in plan.cells(count)]
        turns = sum(plan.rounds_of(cell) * plan.takes_part(kind, cell) for cell in every for kind in kinds)
        self._progress = Progress(turns)

    def run(self):
        for count in self.plan.rules:
            if cells := self.plan.cells(count):
                with contextlib.ExitStack() as meshes:
                    self._all(cells, [mesh for kind in self.kinds if (mesh := self._made(kind, count, meshes))])
        self._progress.end()

    def _made(self, kind, count, meshes):
        """A mesh that works; None if it does not, which loses nobody else's figures."""
        self._progress.say(f"{count:,} rules: starting {kind.title}")
        with contextlib.ExitStack() as attempt:
            try:
                mesh = attempt.enter_context(Mesh(kind, self.lab, self.places, self.plan, count))
                self.results.proofs[count, kind.name] = proof.prove(mesh)
            except LabError as why:
                self._leave_out(kind, count, why)
                return None
            meshes.enter_context(attempt.pop_all())
            return mesh

    def _leave_out(self, kind, count, why):
        self.results.absent[kind.name, count] = str(why)
        self._progress.say(f"{count:,} rules: {kind.title} is left out: {why}")

    def _all(self, cells, meshes):
        """Round by round, in each all cells, in each cell all contestants in an order that nobody knows."""
        plan = self.plan
        parts = {cell: [mesh for mesh in meshes if plan.takes_part(mesh.kind, cell)] for cell in cells}
        for cell, part in parts.items():
            # In the order of the tables.
            self.results.turns |= {(cell, mesh.name): [] for mesh in part}
        rounds = max(plan.rounds_of(cell) for cell in cells)
        for number in range(rounds):
            for cell, part in parts.items():
                turns = list(part) if number < plan.rounds_of(cell) else []
                self._order.shuffle(turns)
                for mesh in turns:
                    subject = f"{cell.rules:,} rules, round {number + 1} of {rounds}"
                    self._progress.step(subject, f"{cell.name} {mesh.title}")
                    self.results.turns[cell, mesh.name].append(self._turn(mesh, cell, number))

    def _turn(self, mesh, cell, number):
        """A turn that fails loses no other."""
        if mesh.failures >= self.plan.most_failures:
            return None
        try:
            taken = turn.take(mesh, cell)
        except LabError as why:
            mesh.failures += 1
            self.results.failures.append((mesh.name, cell.name, number + 1, str(why)))
            self._progress.say(f"{cell.name} {mesh.title}: {why}")
            return None
        mesh.failures = 0
        return taken
