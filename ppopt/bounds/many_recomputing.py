"""What limits of memory say of many cuts at once where it is open what recomputes: less is held where a device takes longer.

Let a device recompute for ``T`` ticks of a microbatch, all its stages together: ``e_k`` of them in stage ``s_k``, which holds
``y_k`` less then. Count the time that it recomputes as idle. The bounds of :mod:`ppopt.bounds.filling` then hold for all its
other work, with the durations without recomputing. Of the ``microbatches * T`` ticks those outside the two windows, before the
first moment and behind the second one, come on top. Of ``n_k`` backwards of ``s_k`` that are run in a window they are ``n_1 e_1 +
... + n_v e_v``, no more than ``max n_k * T``. So at least ``idle - max n_k * T`` ticks of a window are truly idle, and the
makespan is no less than ``work + microbatches * T`` and what is left of both windows.

*Memory.* At each price ``p`` (:mod:`ppopt.bounds.savings`) ``y_k <= e_k / p + a_k``, where ``a_k`` is the surplus of the layers
of ``s_k``, in what is held. So ``m_k`` microbatches of which the device holds something hold no less than ``sum of m_k (held_k -
a_k) - max m_k * T / p``; and no less than ``sum of m_k (held_k - most saved_k)``.

*All T.* ``T`` is in some range ``low..high``. Numbers that fit anywhere in it fit at ``high``; where none fit, ``T`` is in no
such range. With fixed numbers each bound is a constant and a number times ``T``. The least of several such lines is concave in
``T``, so it is smallest at an end of the range. The bound of the device is the least one of all ranges.

*The largest T.* The last range ends at ``longest``, where each layer saves the most that it can in the least time. A larger ``T``
has no smaller bound than that. Numbers that fit there fit at ``longest``, as ``y_k <= most saved_k <= longest_k / p + a_k``. With
these a bound of one window grows with ``T``, as ``max n_k <= microbatches``. That of both is used where not all microbatches fit
at once, so that the windows are apart: recomputing in them takes ``microbatches * T`` at most, and work and idle time are left.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppopt.bounds.filling import Held
from ppopt.bounds.many_fillings import ManyFillings, ManyPhases, Tried, sums_of, value_of
from ppopt.bounds.savings import Price, Savings
from ppopt.bounds.ways import Part
from ppopt.pipeline import IntArray

if TYPE_CHECKING:
    from ppopt.bounds.many_cuts import ManyCuts

RANGES = 16
"""Ranges of the time that a device recomputes for, the lower ones smaller. Measured: 300 cuts of 82 layers in a wave of 2 chunks
on 8 devices, 32 microbatches, within little memory: the largest bound is 11004 with 4 ranges, 11307 with 16, 11354 with 64, in
0.16, 0.40 and 1.5 s; 10740 in 0.08 s where what is saved takes nothing."""
FINER = 2**16
"""Parts of an amount in which what a price says is counted, where numbers are small enough."""
LARGEST = 2**60
"""No number that occurs is larger."""
MARGIN = 1e-12
"""Beyond what floating point rounds."""


class _Claims(NamedTuple):
    """What the stages of each cut hold of a microbatch in one phase; all amounts are finer ones (:data:`FINER`)."""

    least: IntArray
    """However the layers recompute."""
    at: Sequence[IntArray]
    """At each price, what is held less the surplus. What ``T`` saves is still to be taken off."""


class ManyRecomputing:
    """What is known of the layers of many cuts, where it is open what recomputes."""

    def __init__(self, cuts: ManyCuts, memory: Held, savings: Savings) -> None:
        self.cuts, self.kinds, self.prices = cuts, savings.kinds, savings.prices
        least, microbatches = memory.least, max((filling.most for filling in cuts.fillings), default=1)
        largest = 2 * microbatches * (sum(memory.held) + sum(memory.kept) + max(map(abs, memory.room)) + sum(memory.own) + 1)
        self.finer = max(1, min(FINER, LARGEST // largest))
        self.longest = sums_of(savings.longest)
        self._all = self.finer * sum(memory.held)

        def finer(of: Sequence[int]) -> IntArray:
            return sums_of([self.finer * value for value in of])

        def at(price: Price, of: Sequence[int]) -> IntArray:
            worth = (-(-self.finer * each // price.ticks) for each in savings.surplus(price))
            return sums_of([self.finer * value - saved for value, saved in zip(of, worth, strict=True)])

        self._held = finer(least.held), [at(price, memory.held) for price in self.prices]
        self._kept = finer(least.kept), [at(price, memory.kept) for price in self.prices]

    def on(self, ends: IntArray) -> RecomputingOn:
        """That of some cuts, by where their stages end."""
        return RecomputingOn(self, ends)

    def saved(self, price: Price, time: IntArray) -> IntArray:
        """How much less is held at a price for so many ticks, at most; never more than all that there is."""
        each = float(Fraction(self.finer * price.amount, price.ticks))
        found: IntArray = np.minimum(np.ceil(time * each * (1 + MARGIN)), self._all).astype(np.int64)
        return found


class RecomputingOn:
    """What is known of some cuts (:class:`ManyRecomputing`)."""

    def __init__(self, of: ManyRecomputing, ends: IntArray) -> None:
        self._of = of

        def each(sums: IntArray) -> IntArray:
            return of.cuts.of_stages(sums, ends)

        self.longest = each(of.longest)
        self.held, self.kept = (_Claims(each(least), list(map(each, at))) for least, at in (of._held, of._kept))

    def value(self, filling: ManyFillings, duration: IntArray, room: IntArray) -> IntArray:
        """The bound of each cut by what is said of a device, whatever recomputes."""
        of, stages, most = self._of, filling.stages, filling.most
        head, tail, work = (value_of(way, duration) for way in (filling.head, filling.tail, filling.work))
        room = of.finer * room
        first = [(j, _Phase(of, one, duration, self.held, room)) for j, one in filling.first]
        last = [(j, _Phase(of, one, duration, self.kept, room)) for j, one in filling.last]
        longest = self.longest[:, stages].sum(axis=1)
        found = np.full(len(duration), LARGEST)
        times = [*(np.floor(longest * (number / RANGES) ** 2).astype(np.int64) for number in range(RANGES)), longest]
        for low, high in itertools.pairwise(times):
            saved = [of.saved(price, high) for price in of.prices]
            ends = np.stack([low, high])
            more = most * ends
            begin = [(j, phase.least(ends, saved)) for j, phase in first]
            end = [(j, phase.least(ends, saved)) for j, phase in last]
            none = np.any([one[0] == LARGEST for _, one in (*begin, *end)], axis=0)  # without phases False
            best = head + tail + most * low
            for one in (*(one + more + tail for _, one in begin), *(head + other + more for _, other in end)):
                np.maximum(best, one.min(axis=0), out=best)
            full = [self._full(stages[: j + 1], most, room, saved) for j in range(len(stages))]
            for (i, one), (j, other) in itertools.product(begin, end):
                np.maximum(best, np.where(full[min(i, j)], (one + other + more).min(axis=0), 0), out=best)
            np.minimum(found, np.where(none, LARGEST, best), out=found)
        found[found == LARGEST] = 0  # nothing fits at all, which is said elsewhere
        found += work
        return found

    def _full(self, stages: Sequence[int], most: int, room: IntArray, saved: Sequence[IntArray]) -> IntArray:
        """Whether there is no room for all microbatches of some stages at once."""
        found: IntArray = most * self.held.least[:, stages].sum(axis=1) > room
        for at, less in zip(self.held.at, saved, strict=True):
            found |= most * np.maximum(at[:, stages].sum(axis=1) - less, 0) > room
        return found


class _Phase:
    """How little a device can do in a phase on some cuts, whatever recomputes; ``room``: in finer amounts."""

    def __init__(self, of: ManyRecomputing, phase: ManyPhases, duration: IntArray, claims: _Claims, room: IntArray) -> None:
        self._most, self._tried = phase.most, phase.on(duration)
        counts, stage = phase.counts, phase.counts[0].stage
        again = [any(part == Part(of.kinds[part.stage], part.stage) for part, _ in one.gain.times) for one in counts]
        self._first_again = again[0]
        self._again = _largest(self._tried, [i for i in self._tried.numbers if again[i]])
        self._holding = _largest(self._tried, [i for i in self._tried.numbers if counts[i].holds > 0])
        left, each = phase.left(self._tried, claims.least, room), claims.least[:, stage, None]
        within = np.where(each > 0, np.minimum(self._most, left // np.maximum(each, 1)), self._most)
        self._within = np.where(left >= 0, within, -1)
        """So many of the first kind at most, whatever is saved."""
        self._left = [phase.left(self._tried, at, room) for at in claims.at]
        self._each = [np.maximum(at[:, stage, None], 0) for at in claims.at]

    def least(self, times: IntArray, saved: Sequence[IntArray]) -> IntArray:
        """Idle ticks of each cut at least (beside what it recomputes), for two times (rows) that the device recomputes for a
        microbatch; :data:`LARGEST` where no numbers fit. ``saved``: how much less is held at each price for the longer one."""
        most, tried = self._within, self._tried
        for left, each, less in zip(self._left, self._each, saved, strict=True):
            most = np.minimum(most, self._fitting(left, each, less[:, None]))
        possible = most >= tried.needed
        done = tried.done + most * tried.gain[:, None]
        again = np.maximum(self._again, most) if self._first_again else self._again
        rows = [np.where(possible, done + again * time[:, None], -1).max(axis=1) for time in times]
        return np.stack([np.where(row < 0, LARGEST, tried.until - row) for row in rows])

    def _fitting(self, left: IntArray, each: IntArray, less: IntArray) -> IntArray:
        """How many of the first kind fit at a price. ``less`` counts once for each unit of the largest number: that is the first
        kind's own, or another one, which it is no larger than then."""
        net = each - less
        largest = np.where(net > 0, left // np.maximum(net, 1), self._most)
        other = left + self._holding * less
        smaller = np.where(each > 0, other // np.maximum(each, 1), np.where(other >= 0, self._most, -1))
        found: IntArray = np.maximum(largest, np.minimum(smaller, self._holding))
        return found


def _largest(tried: Tried, places: Sequence[int]) -> IntArray:
    """The largest of some numbers."""
    numbers: Mapping[int, IntArray] = tried.numbers
    found = np.zeros((1, 1), dtype=np.int64)
    for place in places:
        found = np.maximum(found, numbers[place])
    return found
