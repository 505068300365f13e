"""Cut and order searched for together: in boxes of cuts around the best one and around settled ones, and in all at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from ppopt.bounds.cut_list import SomeCuts
from ppopt.bounds.many_cuts import ends_of
from ppopt.clock import Clock, Limits
from ppopt.interrupt import uninterrupted
from ppopt.pipeline import IntArray
from ppopt.schedule import Order, Schedule
from ppopt.search.choices import Time
from ppopt.search.cuts import plain, shown
from ppopt.search.near_cuts import At, at_best_times, value_of
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.settings import Settings

if TYPE_CHECKING:
    from ppopt.bounds.scheduled_cuts import Box, FoundCut


@dataclass(frozen=True)
class Looked:
    """What a look into a box has shown: a better schedule, if one was found, and that no cut of the box has one below ``bound``.

    ``value``: the objective of that schedule, in the user's unit like the bound. ``closed``: nothing else in the box is better
    than what is known.
    """

    box: Box | SomeCuts
    schedule: Schedule | None
    value: Fraction | None
    bound: Fraction
    closed: bool

    def __str__(self) -> str:
        found = "nothing found"
        if self.schedule is not None and self.value is not None:
            found = f"best {plain(self.value)} on {shown(self.schedule.pipeline.counts)}"
        return f"{found}, no better one" if self.closed else f"{found}, bound {plain(self.bound)}"


class Looks:
    """Looks at cut and order together.

    ``seconds``: of the next look; ``spent``: of all so far; ``in_vain``: the number of looks since the last one that came to an
    end or found something.
    """

    def __init__(self, over: OverCuts, at: At, settings: Settings, seconds: float) -> None:
        self.spent, self.seconds, self.in_vain = 0.0, seconds, 0
        self.useful = over.joint
        """Whether there is a model, and what it finds is what it seems to be: better once it is timed by the rules."""
        self._over, self._at, self._settings = over, at, settings

    def due(self, others: float) -> bool:
        """Whether a look comes next, where single cuts have taken that many seconds: as long as all looks may take; after one in
        vain these may take half as long, after two a third, and so on."""
        return self._may_take(others / (1 + self.in_vain))

    def _may_take(self, seconds: float) -> bool:
        """Whether the next look fits where all looks may take that many seconds."""
        return self.useful and self.spent + self.seconds <= seconds

    def _look(
        self, box: Box, lower: Time, below: Time, clock: Clock, only: IntArray | None = None
    ) -> tuple[FoundCut, Schedule | None]:
        """Look for a schedule below that much on a cut of a box, of which none has less than ``lower``.

        ``only``: some of its cuts, by their ends.
        """
        before = clock.spent
        limits = Limits(clock.slice(self.seconds), 0.0, self._settings.workers, self._settings.seed)
        found = self._over.with_order(limits, lower, below, box, only)
        self.spent += clock.spent - before
        self.in_vain = 0 if found.settled or found.counts is not None else self.in_vain + 1
        schedule = None
        if found.counts is not None:
            schedule = self._timed(found.counts, found.rows)
            self.useful = schedule is not None and value_of(schedule, self._over.objective) < below
        return found, schedule if self.useful else None

    def _looked(self, box: Box | SomeCuts, found: FoundCut, schedule: Schedule | None, below: Time) -> Looked:
        bound = Fraction(found.bound, self._over.per_unit)
        value = None if schedule is None else value_of(schedule, self._over.objective)
        return Looked(box, schedule, value, bound, bound >= (below if value is None else min(below, value)))

    def _timed(self, counts: Counts, rows: object) -> Schedule | None:
        """A schedule by the rules; ``None``: there is none, or it does not fit the memory."""
        pipeline = self._at(counts)
        if pipeline is None:
            return None
        schedule = at_best_times(pipeline, Order.of(pipeline, rows), self._over.objective)  # type: ignore[arg-type]
        return schedule if schedule is not None and schedule.within_memory else None


class Around(Looks):
    """Looks into boxes around the best cut; the next one is twice as large, where nothing more is to be found in the last one.

    Where the last look came to no end without finding anything, it is twice as long as well.
    """

    def __init__(self, over: OverCuts, at: At, settings: Settings, seconds: float) -> None:
        super().__init__(over, at, settings, seconds)
        layers = over.pipeline.layers
        assert layers is not None
        self._reach, self._most = 1, len(layers)

    def name(self, counts: Counts) -> str:
        """The next look, in words."""
        return f"cuts and orders, ends within {self._reach} of {shown(counts)}"

    def look(self, counts: Counts, lower: Time, below: Time, clock: Clock) -> Looked:
        """Look for something below that much around a cut, where no cut has less than ``lower``."""
        box = boxes().around(counts, self._reach)
        found, schedule = self._look(box, lower, below, clock)
        looked = self._looked(box, found, schedule, below)
        if looked.closed or found.counts is None:
            self._reach = min(2 * self._reach, self._most)
        if not looked.closed and found.counts is None:
            self.seconds *= 2
        return looked


class AroundSettled(Looks):
    """Looks around the cut that was settled last (:attr:`cut`), within a limit of memory: what refutes it often refutes others.

    Some of its ends may be elsewhere, each of them as far away as the bound of the cut stays small enough if it alone is; first
    those that may be at most places. After each box that has nothing better they are twice as many, half as many after one that
    stays open; beyond all of them each may be a layer further away, then two, and so on. Measured for 48 layers in 8 stages: a
    cut is refuted in 0.2 s, the 2187 cuts whose ends are no more than a layer from those of one in 5 s.
    """

    def __init__(self, over: OverCuts, at: At, settings: Settings, seconds: float) -> None:
        super().__init__(over, at, settings, 2 * seconds)  # a box takes some times as long as a cut
        self.useful = self.useful and over.limited
        self.cut: Counts | None = None
        self._size = 2

    def due(self, others: float) -> bool:
        """Whether a look comes next, where single cuts have taken that many seconds: as long as all looks may take, also after
        those in vain, which make the next box smaller."""
        return self.cut is not None and not self._over.listing and self._may_take(others)

    def name(self, counts: Counts) -> str:
        """The next look, in words."""
        assert self.cut is not None
        return f"cuts and orders, up to {min(self._size, len(self.cut) - 1)} ends elsewhere than in {shown(self.cut)}"

    def look(self, counts: Counts, lower: Time, below: Time, clock: Clock) -> Looked:
        """Look for something below that much around :attr:`cut`, where no cut has less than ``lower``."""
        assert self.cut is not None
        box = self._box(self.cut, below)
        found, schedule = self._look(box, lower, below, clock)
        looked = self._looked(box, found, schedule, below)
        if looked.closed:
            self._size *= 2
        elif self._size > 1:
            self._size //= 2
        else:
            self.seconds *= 2
        self.cut = None
        return looked

    def _box(self, cut: Counts, below: Time) -> Box:
        many = self._over.many
        assert many is not None, "it is for limits of memory"
        ends = ends_of(cut)
        low, high = list(ends), list(ends)
        places = list[tuple[int, int, list[int]]]()
        for end, (before, after) in enumerate(zip((0, *ends[:-1]), (*ends[1:], many.layers), strict=True)):
            others = np.repeat([ends], after - before - 1, axis=0)
            others[:, end] = range(before + 1, after)
            small = many.fits(others) & (many.each(others).max(axis=1) < float(below * self._over.per_unit))
            good = [*others[small, end].tolist(), ends[end]]
            places.append((-len(good), end, good))
        reach = (self._size // len(low)).bit_length() - 1
        further = boxes().around(cut, max(reach, 0))
        for _, end, good in sorted(places)[: self._size]:
            low[end], high[end] = min(*good, further.low[end]), max(*good, further.high[end])
        return boxes()(tuple(low), tuple(high))


class Everywhere(Looks):
    """Looks at all cuts: is there anything below a part of the way from the bound to the best? If not, that is a bound.

    After an answer the next question comes at once, for twice the part; where none came, for half of it and for twice as long,
    when it is its turn. All looks may take as long as single cuts, in vain or not: where the ramps of the schedule decide,
    as in loops, nothing else raises the bound. Measured: the first question is rarely answered for the whole way, and mostly for
    a quarter of it.
    """

    def __init__(self, over: OverCuts, at: At, settings: Settings, seconds: float) -> None:
        super().__init__(over, at, settings, seconds)
        self._part, self._answered = Fraction(1, 4), False

    def due(self, others: float) -> bool:
        """Whether a look comes next, where single cuts have taken that many seconds."""
        return not self._over.listing and self._may_take(math.inf if self._answered else others)

    def name(self, counts: Counts) -> str:
        """The next look, in words."""
        return "all cuts and orders"

    def look(self, counts: Counts, lower: Time, below: Time, clock: Clock) -> Looked:
        """Look for something between ``lower``, which no cut is below, and a part of the way from there to ``below``."""
        layers = self._over.pipeline.layers
        assert layers is not None
        box = boxes().all_of(len(layers), self._over.pipeline.stages)
        tick = Fraction(1, self._over.per_unit)
        asked = min(Fraction(below), max(lower + self._part * (Fraction(below) - Fraction(lower)), lower + 2 * tick))
        found, schedule = self._look(box, lower, asked, clock)
        self._answered = found.settled
        if found.settled:
            self._part = min(2 * self._part, Fraction(1))
        elif schedule is None:
            self._part, self.seconds = self._part / 2, 2 * self.seconds
        return self._looked(box, found, schedule, below)


def boxes() -> type[Box]:
    """The type of boxes of cuts."""
    with uninterrupted():  # the solver is imported when it is used
        from ppopt.bounds.scheduled_cuts import Box
    return Box
