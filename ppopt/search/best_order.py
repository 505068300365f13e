"""The order of the best cut: improved on its own cut, and run on other cuts.

A first look at a cut takes a second or a few, in which a search hardly gets to its neighbourhoods. So they are searched around
the best schedule of all cuts. Measured for 28 layers on 8 devices of two chunks, 16 microbatches, in what 1F1B needs: in a minute
the best schedule takes 11 % less so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from fractions import Fraction

from ppopt import cpsat, tabu
from ppopt.clock import Clock, Limits
from ppopt.constraints import Word
from ppopt.schedule import Objective, Schedule
from ppopt.search import strategies, tuning
from ppopt.search.choices import Time
from ppopt.search.cuts import shown
from ppopt.search.near_cuts import At, followed, found_on, value_of
from ppopt.search.order_on_cuts import OrderOnCuts
from ppopt.search.over_cuts import Counts
from ppopt.search.settings import Settings
from ppopt.search.step import Taken
from ppopt.search.steps.neighbourhoods import not_for_windows
from ppopt.search.whereabouts import at


class BestOrder:
    """Searches for a better order of the best cut.

    ``seconds``: of the next search, on the same cut twice as long after one that was cut short without finding any; ``spent``: of
    all so far, but those on other cuts.
    """

    def __init__(self, objective: Objective, settings: Settings, at: At, seconds: float, on_cuts: OrderOnCuts) -> None:
        self.on_cuts = on_cuts
        self.seconds, self.spent, self._first = seconds, 0.0, seconds
        self._objective, self._settings, self._at = objective, settings, at
        self._in_vain = 1
        """The number of searches since the last one that found a better order; before the first one 1."""
        self._counts: Counts = ()
        """The cut of the last search."""
        self._done: Schedule | None = None
        """The schedule around which nothing is left to be searched."""

    def due(self, best: Schedule | None, words: Collection[Word], others: float) -> bool:
        """Whether a search comes next: after one that found something at once, else once single cuts have taken so long
        (``others``, in seconds) as these searches may take. ``words``: what binds beside the rules on the cut of ``best``."""
        if best is None or best is self._done or not_for_windows(best.pipeline, self._objective, words):
            return False
        return self._in_vain * (self.spent + self.seconds) <= others

    def improved(self, best: Schedule, least: Fraction | float, clock: Clock, steps: list[Taken]) -> Schedule:
        """A better schedule on the cut of ``best``, or ``best``; none of this cut takes less than ``least`` (the user's unit)."""
        if best.pipeline.counts != self._counts:
            self._counts, self._in_vain, self.seconds = best.pipeline.counts, min(self._in_vain, 1), self._first
        own = clock.slice(self.seconds)
        found = self._searched(best, least, own, steps)
        self.took(own.spent, found is not best)
        if found is best and own.over:
            self.seconds *= 2
        elif found is best:
            self._done = best
        return found

    def took(self, seconds: float, gained: bool) -> None:
        """Count a search for a better order, also one that was made elsewhere."""
        self.spent += seconds
        self._in_vain = 0 if gained else self._in_vain + 1

    def raced(
        self, own: Schedule, words: Collection[Word], least: Time, below: Time, clock: Clock, steps: list[Taken]
    ) -> Schedule:
        """A better schedule on the cut of ``own``, or ``own``, where one below ``below`` seems to be in reach: as long as it
        would be if half as much again were gained as the last time. Otherwise as :meth:`improved`."""
        if not_for_windows(own.pipeline, self._objective, words):
            return own
        gained: Time = math.inf
        value = value_of(own, self._objective)
        while gained > 0 and value >= below > value - gained / 2 and not clock.over:
            own = self._searched(own, least, clock.slice(self._first), steps)
            before, value = value, value_of(own, self._objective)
            gained = before - value
        return own

    def _searched(self, best: Schedule, least: Time, own: Clock, steps: list[Taken]) -> Schedule:
        begun, pipeline = time.monotonic(), best.pipeline
        limits = Limits(own, 0.0, self._settings.workers, self._settings.seed)
        lower = math.ceil(least * pipeline.ticks.per_unit)
        found: Schedule | None = None
        with at("the order of the best cut"):
            if tabu.unknown(pipeline) is None:
                half = limits.slice(own.left / 2)
                found = tabu.improved(best, objective=self._objective, lower=lower, limits=half, seed=limits.seed).schedule
            outcome = cpsat.improved(
                found or best, objective=self._objective, lower=lower, limits=limits, tuning=tuning.NEIGHBOURHOODS
            )
        found = outcome.schedule or found
        said = "nothing found" if found is None else f"best {pipeline.time(found.objective(self._objective))}"
        steps.append(Taken(f"the order on {shown(pipeline.counts)}", time.monotonic() - begun, said))
        return best if found is None else found

    def on_other_cuts(
        self, best: Schedule, words: Collection[Word], left_out: Collection[Counts], clock: Clock, steps: list[Taken]
    ) -> Schedule:
        """The order of ``best`` on another cut, where it takes less time; or ``best``. It is looked for among all cuts where the
        times on these are known (:class:`OrderOnCuts`), else near its own, none of ``left_out``."""
        if words:
            return best
        begun, own = time.monotonic(), clock.slice(strategies.MOVES * self._settings.seconds)
        anywhere = self.on_cuts.useful(best)
        found = self.on_cuts.best(best, own) if anywhere else followed(best, self._objective, self._at, left_out, own)
        if found is not best:
            steps.append(Taken("the order on other cuts", time.monotonic() - begun, found_on(found, self._objective)))
        return found
