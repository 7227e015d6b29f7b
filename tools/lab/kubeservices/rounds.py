"""All contestants in turn, size by size."""

import contextlib
import time

from ..errors import LabError
from ..interleave import order
from .trial import Trial
from .workload import Workload


class Rounds:
    """`sizes` maps each size to the results of those that were measured at it, by name."""

    def __init__(self, lab, places, plan, kinds, say):
        self.lab, self.places, self.plan, self.kinds, self.say = lab, places, plan, kinds, say
        self.sizes = {}
        #: (contestant, size) -> why there are no figures.
        self.absent = {}

    def run(self):
        for size in self.plan.sizes:
            with self.lab.scope(), contextlib.ExitStack() as clusters:
                self._size(Workload(size, self.plan.endpoints), clusters)

    def _size(self, load, clusters):
        trials = [trial for kind in self.kinds if (trial := self._filled(kind, load, clusters))]
        self.sizes[load.size] = {trial.name: trial.results for trial in trials}
        for trial in trials:
            self._changes(trial, load)
        for number in range(self.plan.rounds if trials else 0):
            if number % self.plan.position_every == 0:
                self.say(f"{load.size:,} Services: round {number + 1} of {self.plan.rounds}")
            for trial in order(trials, number):
                self._turn(trial, load, number)
        for trial in trials:
            trial.account()

    def _filled(self, kind, load, clusters):
        """A trial that is ready; None if it cannot be made ready in time, which loses nobody else's figures."""
        self.say(f"{load.size:,} Services: loading {kind.title}")
        with contextlib.ExitStack() as attempt:
            try:
                trial = attempt.enter_context(Trial(kind, self.lab, self.places, self.plan, load))
                trial.fill()
            except LabError as why:
                self.absent[kind.name, load.size] = str(why)
                self.say(f"{load.size:,} Services: {kind.title} is left out: {why}")
                return None
            clusters.enter_context(attempt.pop_all())
            return trial

    def _changes(self, trial, load):
        """The last endpoint is exchanged for the pod that is none yet, and back."""
        if not trial.kind.programs:
            return
        self.say(f"{load.size:,} Services: changing one endpoint with {trial.title}")
        now, other = load.middle, load.middle.with_last(load.pods[-1])
        end = time.monotonic() + self.plan.changes_seconds
        for number in range(2 * self.plan.changes):
            trial.change(now, other)
            now, other = other, now
            # An even number, so that all Services are as they were.
            if number % 2 and time.monotonic() > end:
                return

    def _turn(self, trial, load, number):
        results = trial.results
        results.short.append(trial.short(load.middle))
        results.keep.append(trial.keep(load.middle))
        if number % self.plan.position_every == 0:
            results.first.append(trial.short(load.first))
            results.last.append(trial.short(load.last))
