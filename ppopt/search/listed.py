"""The cuts whose bound is below a value, one by one, and cut and order searched for together among some of them.

Within a limit of memory few cuts are left once a good schedule is known: of 48 layers in 8 stages 1500 of 63 million have a known
bound below the best, of 56 layers 8000 of 200 million. They are listed (:mod:`ppopt.bounds.listed_cuts`), so that nothing has to
be asked of all cuts any more: the bound over all is the least in the list, which those settled leave.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ppopt.bounds.listed_cuts import SomeCuts, seconds_of_box
from ppopt.clock import Clock
from ppopt.search import strategies
from ppopt.search.boxes import Looked, Looks, boxes
from ppopt.search.choices import Time
from ppopt.search.near_cuts import At
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.settings import Settings

LEAST_BOXES = 50_000
"""Boxes that a list has time for at least, where one is tried. Measured: 48 and 56 layers in 8 stages need 50,000 to 330,000; 28
in 16 stages on 8 devices, where a box takes fifty times as long, only lose time by it."""
AMONG = 4
"""Times as many cuts of the least bounds among which those near the least one are taken. Measured, with twice the time: 56 layers
in a wave of 2 on 4 devices are 0.7 % open after 60 s, 1.8 % where all that are listed may be taken."""
MOST = 20_000
"""Cuts in a list at most: two and a half times as many as in the longest that was measured, of 56 layers in 8 stages."""


class AmongListed(Looks):
    """Looks at the listed cuts of the least bounds, those near the least one together; is there anything better among them?

    Those that are refuted are left out, and the next are twice as many; half as many after a look that came to no end.
    """

    def __init__(self, over: OverCuts, at: At, settings: Settings, seconds: float) -> None:
        super().__init__(over, at, settings, 2 * seconds)
        affordable = 0.0 if over.many is None else strategies.MOST_LISTING * settings.seconds / seconds_of_box(over.many)
        self.useful = self.useful and affordable >= LEAST_BOXES
        self._size, self._part = 16, Fraction(1, 2)
        self._listing = strategies.LISTING * settings.seconds
        """Seconds for the next list."""
        self._too_long = False
        """Whether the last list came to no end."""

    def due(self, others: float) -> bool:
        """Whether a look comes next, where single cuts have taken that many seconds: twice as long as these may take,
        and four times as long while there is a list."""
        if not self._over.listing and self._too_long:
            return self.useful and self.spent + self._listing <= 2 * others
        return self._may_take(4 * others if self._over.listing else 2 * others)

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

    def _list(self, lower: Time, below: Time, clock: Clock) -> Looked:
        """List cuts whose bound is below a part of the way from ``lower`` to ``below``: the next time for twice as long.

        The next part is twice as large then, or half as large where this took too long.
        """
        before = clock.spent
        asked = Fraction(lower) + self._part * (Fraction(below) - Fraction(lower))
        done = self._over.list_cuts(asked, MOST, clock.slice(self._listing))
        self._part = min(2 * self._part, Fraction(1)) if done else self._part / 2
        self._too_long = not done
        self._listing = min(2 * self._listing, strategies.MOST_LISTING * self._settings.seconds)
        self.spent += clock.spent - before
        none = SomeCuts(np.zeros((0, self._over.pipeline.stages - 1), dtype=np.int64))
        return Looked(none, None, None, Fraction(self._over.bound), False)
