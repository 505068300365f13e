"""The cut of the layers that has the least bound, asked of all that are left (:meth:`~ppopt.search.over_cuts.OverCuts.least`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from ppopt.clock import Clock, Limits
from ppopt.pipeline import CHOOSE
from ppopt.search import strategies
from ppopt.search.choices import Time
from ppopt.search.near_cuts import At
from ppopt.search.offered_cuts import OfferedCuts
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.settings import Settings
from ppopt.search.whereabouts import at

IN_PARTS = 1 / 12
"""Of the whole time, what the first question may take that is asked in parts. Measured: 64 layers in 16 stages in a wave, 2 to
4.5 s show that no cut has a quarter of the gap or less, which raises the bound by 8 to 12 %."""


class LeastCut:
    """Asks for the cut with the least bound.

    ``at``: the pipeline of a cut at its fastest; ``best``: the cut of the best schedule, if there is one; ``report`` is called
    after each question. ``seconds``: of the next question, twice as long after one that was not answered in time.

    Where it is open what recomputes, questions for all that is left are often not answered, but smaller ones soon are: is any cut
    below the bound and a quarter of the gap? So a quarter is asked for at first, twice as much after an answer, and half as much
    where there was none.
    """

    def __init__(
        self,
        over: OverCuts,
        at: At,
        settings: Settings,
        offered: OfferedCuts,
        best: Callable[[], Counts | None],
        report: Callable[[], None],
    ) -> None:
        self._over, self._at, self._settings, self._offered = over, at, settings, offered
        self._best, self._report = best, report
        self._in_parts = offered.local and over.pipeline.recompute == CHOOSE
        self.seconds = max((IN_PARTS if self._in_parts else strategies.OVER_CUTS) * settings.seconds, 1.0)
        self._part = Fraction(1, 4) if self._in_parts else Fraction(1)
        """Of what is open, how much the next question is about."""
        self._raised = False

    def ask(self, below: Time, clock: Clock) -> Counts | None:
        """The cut with the least bound of those that are left, below that much; ``None``: there is none, it was not found in
        time, or none is in the part that was asked for."""
        over, known = self._over, self._over.bound
        below = min(below, self._offered.below)
        if known < below < math.inf:
            below = known + self._part * (Fraction(below) - Fraction(known))
        limits = Limits(clock.slice(self.seconds), 0.0, self._settings.workers, self._settings.seed)
        with at("all cuts"):
            found = over.least(limits, below, self._offered.last or self._best())
        if not over.settled and (over.bound <= known or self._offered.local) and below < math.inf:  # it begins anew
            self.seconds = max(self.seconds, min(2 * self.seconds, strategies.MOST_OVER_CUTS * self._settings.seconds))
        if self._in_parts and below < math.inf:
            self._part = min(2 * self._part, Fraction(1)) if over.settled else self._part / 2
        self._report()
        return found

    def allowed(self, spent: float) -> bool:
        """Whether to ask at all while there are other cuts to be looked at; ``spent``: seconds of the search."""
        return self._over.seconds + self.seconds <= strategies.ASKING * spent

    def raised(self, below: Time, clock: Clock, spent: float) -> None:
        """Where it is open what recomputes, ask as long as there are answers that no cut has so little: the first time, and where
        that is :meth:`allowed`."""
        if not self._in_parts or below == math.inf or (self._raised and not self.allowed(spent)):
            return
        self._raised, bound = True, Fraction(-1)
        while bound < self._over.bound < below and not clock.over:
            bound = Fraction(self._over.bound)
            if self.ask(below, clock) is not None or not self._over.settled:
                break

    def learned(self, below: Time, clock: Clock) -> list[Counts]:
        """The cuts that answer questions for the least bound, until there is nothing to be learned from one or the clock is over.

        Measured, 58 layers of three kinds with a heavy head, a loop of 4 on 8 devices, 60 s: 6.1 % are open where the search
        begins with the best of them, 13.7 % with the first one, 10.3 and 13.5 % with none.
        """
        asked = list[Counts]()
        while not clock.over and (found := self.ask(below, clock)) is not None:
            if (pipeline := self._at(found)) is None:
                self._over.leave_out(found)
                continue
            asked.append(found)
            if not self._over.learn_from(pipeline):
                break
        return asked
