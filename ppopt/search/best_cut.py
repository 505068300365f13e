"""The best cut beside a cut of the layers that is written out: how much more that one takes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol

from ppopt.clock import Clock
from ppopt.constraints import Word
from ppopt.pipeline import BEST, Pipeline, PipelineError
from ppopt.schedule import Objective, Schedule
from ppopt.search import strategies
from ppopt.search.choices import Branch, Report, Time
from ppopt.search.cutting import PartitionChoice
from ppopt.search.result import Result
from ppopt.search.settings import Settings
from ppopt.search.whereabouts import at


class Own(Branch, Protocol):
    """The search on the cut that is written out."""

    def begin(self, start: Schedule | None) -> None:
        """Take over a schedule of this cut."""


class BesideBest:
    """The search on a cut that is written out, and on all cuts of the same layers beside it.

    The cut itself comes first, for most of the time (:data:`ppopt.search.strategies.OWN_CUT`); all cuts have what it leaves, and
    begin with what it has found. What these leave is the cut's own again.

    Raises:
        PipelineError: there are more stages than layers, so that no other cut could be tried.
    """

    def __init__(
        self, own: Own, objective: Objective, settings: Settings, words_of: Callable[[Pipeline], tuple[Word, ...]]
    ) -> None:
        self.pipeline = own.pipeline
        self.result: Result | None = None
        self._own, self._objective, self._settings, self._words_of = own, objective, settings, words_of
        self._all: PartitionChoice | None = None
        self._open = all_cuts(own.pipeline)

    def floor(self, objective: Objective) -> Time:
        """As :meth:`~ppopt.search.choices.Branch.floor`."""
        return self._own.floor(objective)

    def go_on(self, clock: Clock, enough: Time, progress: Report | None) -> Result:
        """As :meth:`~ppopt.search.choices.Branch.go_on`; the result is that of the cut, with the best cut beside it."""
        self.result = self._own.go_on(clock.slice(strategies.OWN_CUT * clock.left), enough, progress)
        if not clock.interrupted:
            try:
                self.result = self._beside(self.result, clock, enough, progress)
            except KeyboardInterrupt:  # between two searches, each of which keeps what it has found
                clock.interrupt()
                if self.result.limit == "time":
                    self.result = dataclasses.replace(self.result, limit="interrupted")
        if self.result.best_cut is None:
            self.result = dataclasses.replace(self.result, untried=("the best cut",))
        return self.result

    def _beside(self, own: Result, clock: Clock, enough: Time, progress: Report | None) -> Result:
        """The result of the cut, with the best cut beside it."""
        best = self._over_all(own, clock)
        if own.limit == "time" and not clock.interrupted:
            if best.schedule is not None and best.pipeline.counts == self.pipeline.counts:
                self._own.begin(best.schedule)
            self.result = own = self._own.go_on(clock, enough, progress)
            best = self._over_all(own, clock)
        steps = (*own.steps, *(step._replace(name=f"best cut: {step.name}") for step in best.steps))
        return dataclasses.replace(own, best_cut=best, steps=steps, versions={**own.versions, **best.versions})

    def _over_all(self, own: Result, clock: Clock) -> Result:
        """What is known of all cuts, with what was found on the one."""
        if self._all is None:
            settings = dataclasses.replace(self._settings, seconds=max(clock.left, 1.0))
            self._all = PartitionChoice(self._open, self._objective, settings, self._words_of)
        self._all.begin_with(own)
        with at("the best cut"):
            return self._all.go_on(clock, math.inf, None)


def all_cuts(pipeline: Pipeline) -> Pipeline:
    """The pipeline with its partition left open.

    Raises:
        PipelineError: it has no layers, more stages than layers, or a partition that is open.
    """
    key = "pipeline.partition"
    if pipeline.layers is None:
        raise PipelineError(key, "there are no layers to cut otherwise")
    if pipeline.partition == BEST:
        raise PipelineError(key, '"best" looks for the best cut anyway; expected one that is settled beside which to look for it')
    return pipeline.changed(partition=BEST, route_of_microbatch=pipeline.route_of_microbatch)
