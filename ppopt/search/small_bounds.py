"""Cuts with small bounds within a limit of memory, by local search: cuts that are likely to be good, without a proof.

The model of all cuts (:mod:`ppopt.bounds.cuts`) is slow where memory is limited. What it knows of one cut is known of hundreds
in some milliseconds (:mod:`ppopt.bounds.many_cuts`). So all cuts near one are looked at, and the best of them is gone to, until
none is better; then the search goes on from a cut some moves away.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable
from fractions import Fraction

import numpy as np

from ppopt import bounds
from ppopt.bounds.many_cuts import ManyCuts, counts_of, ends_of
from ppopt.clock import Clock
from ppopt.pipeline import IntArray
from ppopt.search.choices import Time
from ppopt.search.moves import Moves, Values
from ppopt.search.near_cuts import At
from ppopt.search.over_cuts import Counts, OverCuts

SLACK = 0.05
"""What the bounds of all devices count on average beside the largest one: a device with slack lets the order reach the bound.
Measured: where it breaks ties alone, 24 layers with a heavy head in a loop of 2 on 8 devices are 1.8 % open after 60 s, else 1.0
to 1.1 %; 28 layers in a wave of 2 are the same."""
SECONDS = 1e-5
"""Deterministic seconds for a stage of a cut. Measured: 4e-6 on an idle machine."""
RECOMPUTING = 1e-4
"""The same where it is open what recomputes. Measured: 8e-5 on an idle machine, 32 microbatches, two stages on a device."""
PATIENCE = 4
"""Ways from the best cut in vain before it is looked at. Measured: with 12, few cuts of 40 layers were learned from in 3 s."""


class SmallBounds:
    """Searches for cuts whose bound is small, by what is known of all cuts (``many``), and of single ones.

    ``over``: learns from the cuts that are found; ``at``: the pipeline of a cut.
    """

    def __init__(self, many: ManyCuts, over: OverCuts, at: At, seed: int) -> None:
        self._many, self._over, self._at = many, over, at
        self._moves = Moves(many.layers, many.stages, random.Random(seed), many.fits)
        self._met: set[Counts] = set()
        """Cuts near which none was better."""
        self._own: dict[Counts, Time] = {}
        """Cuts that were looked at, and the bound of each, in the user's unit; infinite where there is no room."""
        self._known: dict[bytes, float] = {}
        """By ends what is known of single cuts, in the ticks of all cuts; infinite where one is not to be given."""

    @property
    def begun(self) -> bool:
        """Whether it has a cut to begin with."""
        return bool(self._met)

    def bound(self, counts: Counts) -> Time:
        """That of a cut that was found, in the user's unit."""
        return self._own[counts]

    def cut(self, start: Iterable[Counts], left_out: Collection[Counts], below: Time, clock: Clock) -> Counts | None:
        """A cut of little bound, less than ``below`` (the user's unit), none of ``left_out``; ``None``: none was found.

        ``start``: cuts to begin with, at least one the first time. All cuts learn from those that it comes to.
        """
        for counts in start:
            self._met.add(counts)
            self._own.setdefault(counts, self._bound(counts))
        while not clock.over:
            found = self._least(left_out, clock)
            if found is None or found in self._own:
                break
            self._own[found] = self._bound(found)
        boxes = self._over.boxes
        given = (of for of in self._own if of not in left_out and not any(box.has(of) for box in boxes))
        best = min(given, key=lambda counts: self._own[counts], default=None)
        return best if best is not None and self._own[best] < below else None

    def _bound(self, counts: Counts) -> Time:
        """That of a cut, by more arguments than are known of many; what is new in that is known from now on."""
        pipeline = self._at(counts)
        if pipeline is None:
            return math.inf
        self._over.learn_from(pipeline)  # first, as the bound counts what is known
        within = bounds.memory(pipeline, self._over.objective)
        return max(self._over.bound_of(pipeline), Fraction(within.value if within else 0, pipeline.ticks.per_unit))

    def _least(self, left_out: Collection[Counts], clock: Clock) -> Counts | None:
        """The cut of the least bound that is found, as far as is known."""
        known = {**self._own, **dict.fromkeys(left_out, math.inf)}
        self._known = {np.array(ends_of(counts)).tobytes(): float(value * self._over.per_unit) for counts, value in known.items()}
        ends = np.array(sorted(map(ends_of, self._met)))
        values = self._values(ends, clock)
        best, value = self._moves.best(ends[int(np.argmin(values))], lambda ends: self._values(ends, clock), PATIENCE, clock)
        counts = counts_of(best, self._many.layers)
        if value == math.inf:
            return None
        self._met.add(counts)
        return counts

    def _values(self, ends: IntArray, clock: Clock) -> Values:
        """How good cuts are: less is better; infinite without room."""
        clock.charge((RECOMPUTING if self._many.recomputes else SECONDS) * ends.shape[0] * self._many.stages)
        each = self._many.each(ends)
        largest = np.where(self._many.fits(ends), each.max(axis=1), math.inf)
        for place, row in enumerate(ends):
            known = self._known.get(row.tobytes())
            if known is not None:
                largest[place] = max(largest[place], known)
        for low, high in self._over.boxes:
            largest[np.all((ends >= low) & (ends <= high), axis=1)] = math.inf
        value: Values = largest + SLACK * each.mean(axis=1)
        return value
