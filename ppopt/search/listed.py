"""The cuts whose bound is below a value, one by one, and cut and order searched for together among some of them.

Within a limit of memory few cuts are left once a good schedule is known: of 48 layers in 8 stages 1500 of 63 million have a known
bound below the best, of 56 layers 8000 of 200 million. Without one it is 20,000 to 200,000 of 3.2e9 for 36 layers in 16 stages,
and certificates of a few of them leave none to 50,000. They are listed (:mod:`ppopt.bounds.listed_cuts`,
:mod:`ppopt.bounds.halved_cuts`), so that nothing has to be asked of all cuts any more: the bound over all is the least in the
list, which those settled leave.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ppopt.bounds.cut_list import SomeCuts
from ppopt.bounds.halved_cuts import seconds_of_halves
from ppopt.bounds.listed_cuts import LEARNING, seconds_of_box
from ppopt.bounds.tight_lists import asked_by
from ppopt.clock import Clock, Limits
from ppopt.schedule import Schedule
from ppopt.search import strategies
from ppopt.search.boxes import Looked, Looks, boxes
from ppopt.search.choices import Time
from ppopt.search.cuts import plain
from ppopt.search.near_cuts import At, found_on
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.settings import Settings
from ppopt.search.single_cuts import SingleCuts
from ppopt.search.step import Taken

LEAST_BOXES = 50_000
"""Boxes that a list has time for at least, where one is tried. Measured: 48 and 56 layers in 8 stages need 50,000 to 330,000; 28
in 16 stages on 8 devices, where a box takes fifty times as long, only lose time by it."""
AMONG = 4
"""Times as many cuts of the least bounds among which those near the least one are taken. Measured, with twice the time: 56 layers
in a wave of 2 on 4 devices are 0.7 % open after 60 s, 1.8 % where all that are listed may be taken."""
MOST = 20_000
"""Cuts in a list at most within a limit of memory: two and a half times as many as in the longest that was measured, of 56 layers
in 8 stages."""
MOST_FORWARDS = 12_000_000
"""Forwards on the cuts of a list at most where memory is not limited. Measured: of 54,000 cuts of 40 layers in 16 stages, 8
microbatches, edge finding leaves 316 in a second; the 20,000 of the least bounds did not have those that stayed open. Of 90,000
cuts in 32 stages, 16 microbatches, it does not come to the end in 12 s, of 20,000 it does in 6."""

LATE = 2
"""Times as long as was thought a list may take where memory is not limited. Measured: 40 layers in 16 stages on 4 devices take 4
seconds with 16 microbatches, 10 with 8, as ramps leave more cuts to be asked."""


FEW = 2
"""So many cuts, at most, are solved one by one, with no search among them. Measured: with one hard cut and a listed one left
rounds of order and cut took 16 of 60 s in vain. With 5 a hard cut has less time: two profiles that are proved in 42 and 45 s stay
0.6 and 0.2 % open, one is proved in 27 s instead of 49."""


class Promising(NamedTuple):
    """Cuts that may be better than the best, the most promising first; ``everywhere``: whether cuts that are not among these may
    be better, too."""

    cuts: Sequence[Counts] = ()
    everywhere: bool = True

    @property
    def few(self) -> Sequence[Counts]:
        """All that may be better, if they are :data:`FEW`, so that each is solved and nothing is searched for among them."""
        return self.cuts if not self.everywhere and len(self.cuts) <= FEW else ()

    def may_hold(self, counts: Counts) -> bool:
        """Whether something better may be on that cut."""
        return self.everywhere or counts in self.cuts


NOTHING_KNOWN = Promising()


class AmongListed(Looks):
    """Looks at the listed cuts of the least bounds, those near the least one together; is there anything better among them?

    Those that are refuted are left out, and the next are twice as many; half as many after a look that came to no end.
    """

    def __init__(self, over: OverCuts, at: At, settings: Settings, seconds: float) -> None:
        super().__init__(over, at, settings, 2 * seconds)
        least = _least_seconds(over)
        self.useful = self.useful and least <= strategies.MOST_LISTING * settings.seconds
        self._quick = least <= strategies.OVER_CUTS * settings.seconds
        self._size, self._part = 16, Fraction(1, 2 if over.limited else 1)
        self._listing = (strategies.LISTING if over.limited else LATE * strategies.MOST_LISTING) * settings.seconds
        """Seconds for the next list."""
        self._too_long = False
        """Whether the last list came to no end, or said nothing new."""
        self.tightened = 0.0
        """Seconds that edge finding and shaving have taken."""
        self._tightening = seconds
        """Seconds for edge finding and shaving, twice as many after a turn in which no cut was done."""
        self._single = SingleCuts(over, at)
        self._as_tight = False
        """Whether the list is as tight as it gets without a look at single cuts."""

    @property
    def first(self) -> bool:
        """Whether they are to be listed before anything more is asked of all cuts, as memory is not limited: where that seems to
        take less time than a question, and where the last question was not answered in time."""
        free = self.useful and not self._over.limited and not self._over.listing and not self._too_long
        return free and (self._quick or not self._over.settled)

    def due(self, others: float) -> bool:
        """Whether a look comes next, where single cuts have taken that many seconds. Within a limit of memory: twice as long as
        these may take, and four times as long while there is a list. Else a list comes at once, and looks into it are as rare
        as others (:meth:`~ppopt.search.boxes.Looks.due`)."""
        if not self._over.limited:
            return self.first or super().due(others)
        if not self._over.listing and self._too_long:
            return self.useful and self.spent + self._listing <= 2 * others
        return self._may_take(4 * others if self._over.listing else 2 * others)

    @property
    def alone(self) -> bool:
        """Whether nothing is to be asked of several cuts at once, as edge finding has left few, which are settled one by one."""
        listed = self._over.listed
        return listed is not None and listed.tight and not self._over.limited

    def tightening(self, look: bool) -> bool:
        """Whether edge finding or shaving may refute listed cuts, or a ``look`` is due. Within a limit of memory, of which these
        know nothing, it is asked no more once they did not."""
        listed = self._over.listed
        if not self.useful or listed is None or self._as_tight:
            return False
        return listed.target(*asked_by(self._single if look else None)) is not None

    def tighten(self, clock: Clock, steps: list[Taken], look: bool) -> Schedule | None:
        """Leave out listed cuts that edge finding or shaving refutes, for as long as a look takes; the best schedule that is
        found on those that shaving leaves, if it is to ``look`` at them."""
        over, begun, listed = self._over, time.monotonic(), self._over.listed
        assert listed is not None
        before, bounds, asked = len(listed.ends), listed.bounds.copy(), listed.asked.copy()
        single, known = self._single, self._single.best
        own = Limits(clock.slice(self._tightening), 0.0, self._settings.workers)
        over.tighten_list(own, single if look else None)
        self.tightened += own.clock.spent
        refuted = before - len(listed.ends)
        raised = refuted > 0 or not np.array_equal(bounds, listed.bounds)
        self._as_tight = over.limited and not raised
        if not raised and np.array_equal(asked, listed.asked):
            self._tightening *= 2
        said = f"{refuted} of {before} have nothing better, bound of the others {plain(over.bound)}"
        if not self.tightening(look):
            single.forget()
        found = single.best if single.best is not known else None
        if found is not None:
            said += f"; {found_on(found, 'makespan')}"
        how = "edge finding, shaving and dynamic programming" if look and single.decides else "edge finding and shaving"
        steps.append(Taken(f"{how} on the cuts that are left", time.monotonic() - begun, said))
        return found

    def name(self, counts: Counts) -> str:
        """The next look, in words."""
        listed = self._over.listed
        if listed is None or not self._over.listing:
            return "the cuts that are left"
        return f"cuts and orders, {min(self._size, len(listed.ends))} of {len(listed.ends)} cuts that are left"

    def look(self, counts: Counts, lower: Time, below: Time, clock: Clock) -> Looked:
        """Look for something below that much among some of the cuts that are left, or list these.

        No cut has less than ``lower``.
        """
        over = self._over
        if not over.listing:
            return self._list(lower, below, clock)
        listed = over.listed
        assert listed is not None
        lowest = np.argsort(listed.bounds, kind="stable")[: AMONG * self._size]
        away = np.abs(listed.ends[lowest] - listed.ends[lowest[0]]).sum(axis=1)
        near = lowest[np.argsort(away, kind="stable")[: self._size]]
        some = listed.ends[near]
        lower = max(lower, Fraction(int(listed.bounds[near].min()), over.per_unit))
        box = boxes()(tuple(some.min(axis=0).tolist()), tuple(some.max(axis=0).tolist()))
        found, schedule = self._look(box, lower, below, clock, some)
        looked = self._looked(SomeCuts(some), found, schedule, below)
        if looked.closed:
            self._size *= 2
        elif schedule is None and self._size > 1:
            self._size //= 2
        elif schedule is None:
            self.seconds *= 2
        return looked

    def promising(self, leaves: Sequence[Counts], below: Time) -> Promising:
        """Where something below that much may be: on cuts that were looked at, ``leaves``, and on listed ones, the least bounds
        first."""
        listed, many = self._over.listed, self._over.many
        if listed is None or many is None or not listed.tight:
            return NOTHING_KNOWN
        ends = listed.ends[np.argsort(listed.bounds, kind="stable")]
        each = np.diff(ends, prepend=0, append=many.layers, axis=1)
        return Promising([*leaves, *map(tuple, each.tolist())], everywhere=listed.below < below * self._over.per_unit)

    def _list(self, lower: Time, below: Time, clock: Clock) -> Looked:
        """List cuts whose bound is below a part of the way from ``lower`` to ``below``: the next time for twice as long.

        The next part is twice as large then, or half as large where this took too long. Certificates of the listed cut of the
        least bound are learned until it has none that is new.
        """
        over, before, known = self._over, clock.spent, self._over.bound
        asked = Fraction(lower) + self._part * (Fraction(below) - Fraction(lower))
        limits = Limits(clock.slice(self._listing), 0.0, self._settings.workers)
        most = MOST if over.limited else MOST_FORWARDS // (over.pipeline.stages * over.pipeline.microbatches)
        done = over.list_cuts(asked, most, limits, self._learned, strategies.LISTING * self._settings.seconds)
        self._as_tight = False
        self._part = min(2 * self._part, Fraction(1)) if done else self._part / 2
        self._listing = min(2 * self._listing, strategies.MOST_LISTING * self._settings.seconds)
        while not clock.over and (counts := over.least_listed(below)) is not None and self._learned(counts):
            clock.charge(LEARNING * len(over.listed.ends) if over.listed else 0)
        self._too_long = not done or (not over.limited and not over.listing and over.bound == known)
        self.spent += clock.spent - before
        none = SomeCuts(np.zeros((0, self._over.pipeline.stages - 1), dtype=np.int64))
        return Looked(none, None, None, Fraction(self._over.bound), False)

    def _learned(self, counts: Counts) -> bool:
        """Whether there was something to learn from a cut; one without room is left out."""
        if (pipeline := self._at(counts)) is None:
            self._over.leave_out(counts)
            return True
        return self._over.learn_from(pipeline)


def _least_seconds(over: OverCuts) -> float:
    """About how long it takes at least to list cuts; infinite where that cannot be done."""
    if over.many is None:
        return math.inf
    return LEAST_BOXES * seconds_of_box(over.many) if over.limited else seconds_of_halves(over.many)
