"""What limits of memory say of many cuts at once (:mod:`ppopt.bounds.filling`), device by device.

Of how much a device can do in a phase only some numbers of operations are tried: more of the first kind that fit, and more of
those that give memory back, are never worse.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from ppopt.bounds.filling import Filling, Phase
from ppopt.bounds.ways import Once
from ppopt.op import Kind
from ppopt.pipeline import IntArray

if TYPE_CHECKING:
    from ppopt.bounds.many_cuts import ManyCuts

Row: TypeAlias = tuple[IntArray, int]
"""A way: how often each duration counts, kind by kind and stage by stage, and a constant."""

MOST_TRIED = 1000
"""Numbers of operations that are tried in a phase; one with more is left out. Measured: 4 stages on a device, 16 microbatches."""


class ManyFillings:
    """What a limit of memory says of one device."""

    def __init__(self, cuts: ManyCuts, filling: Filling, scale: int) -> None:
        self.device, self.stages = filling.device, list(filling.stages)
        self.most = filling.microbatches
        self.work, self.head, self.tail = (cuts.row(way, scale) for way in (filling.work, filling.head, filling.tail))
        self._kinds = np.array([int(kind) for kind, _ in cuts.parts])
        phases = [[ManyPhases(cuts, phase, filling.microbatches, scale) for phase in of] for of in (filling.first, filling.last)]
        self.first, self.last = ([(j, one) for j, one in enumerate(of) if one.tried is not None] for of in phases)

    def work_of(self, *kinds: Kind | Once) -> Row:
        """The part of the work that is of these kinds."""
        row, _ = self.work
        return np.where(np.isin(self._kinds, [int(kind) for kind in kinds]), row, 0), 0

    def value(self, duration: IntArray, held: IntArray, kept: IntArray, room: IntArray) -> IntArray:
        """The bound of each cut."""
        head, tail, work = (value_of(way, duration) for way in (self.head, self.tail, self.work))
        first = [(j, one.least(duration, held, room)) for j, one in self.first]
        last = [(j, one.least(duration, kept, room)) for j, one in self.last]
        found = np.zeros_like(work)
        for one in (*(one + tail for _, one in first), *(head + other for _, other in last)):
            np.maximum(found, one, out=found)
        full = self.most * np.cumsum(held[:, self.stages], axis=1) > room[:, None]
        for (i, one), (j, other) in itertools.product(first, last):
            np.maximum(found, np.where(full[:, min(i, j)], one + other, 0), out=found)
        found += work
        return found


class Tried(NamedTuple):
    """What a device does in a phase, but for how many of the first kind: a row for each cut, a column for each choice that is
    tried."""

    until: IntArray
    """How long the phase is at least, of each cut."""
    gain: IntArray
    """How long one of the first kind takes, of each cut."""
    numbers: Mapping[int, IntArray]
    """Of the other kinds how many, by their places."""
    done: IntArray
    """How long these take."""
    needed: IntArray
    """So many of the first kind at least."""


class ManyPhases:
    """How little a device can do in a phase, for the numbers of operations that are tried."""

    def __init__(self, cuts: ManyCuts, phase: Phase, most: int, scale: int) -> None:
        self.counts, self.most = phase.counts, most
        self.way = cuts.row(phase.way, scale)
        self.gain = [cuts.row(of.gain, scale) for of in phase.counts]
        self.since = [None if of.since is None else cuts.row(of.since, scale) for of in phase.counts]
        self.every = [cuts.row(of.every, scale) for of in phase.counts]
        assert phase.counts[0].holds == 1, "more of what holds memory come first"
        assert phase.counts[0].since is None, "more of what holds memory come first"
        self._free = [i for i, of in enumerate(phase.counts) if i and of.since is None]
        self._ends = [i for i, of in enumerate(phase.counts) if of.since is not None]
        self.tried: IntArray | None = None
        """A row for each choice of the numbers that are free; ``None``: there are too many."""
        if self._choices() <= MOST_TRIED:
            rows = list(self._each({}))
            self.tried = np.array(rows, dtype=np.int64).reshape(len(rows), len(self._free))

    def _choices(self) -> int:
        """How many there are at most."""
        falling = all(i == 1 or self._free[i - 2] in self.counts[i].within for i in self._free)
        return math.comb(self.most + len(self._free), len(self._free)) if falling else (self.most + 1) ** len(self._free)

    def _each(self, known: Mapping[int, int]) -> Iterator[list[int]]:
        """Choices of the numbers that are free, within each other."""
        if len(known) == len(self._free):
            yield list(known.values())
            return
        of = self.counts[self._free[len(known)]]
        for n in range(of.least, min((known[i] for i in of.within if i in known), default=self.most) + 1):
            yield from self._each({**known, self._free[len(known)]: n})

    def least(self, duration: IntArray, held: IntArray, room: IntArray) -> IntArray:
        """Idle ticks of each cut at least."""
        tried = self.on(duration)
        left, each = self.left(tried, held, room), held[:, self.counts[0].stage, None]
        most = np.where(each > 0, np.minimum(self.most, left // np.maximum(each, 1)), self.most)
        possible = (left >= 0) & (most >= tried.needed)
        done = np.where(possible, tried.done + most * tried.gain[:, None], -1)
        found: IntArray = tried.until - done.max(axis=1)
        return found

    def on(self, duration: IntArray) -> Tried:
        """What is tried on each cut."""
        assert self.tried is not None
        until = value_of(self.way, duration)
        numbers: dict[int, IntArray] = {i: self.tried[:, place][None, :] for place, i in enumerate(self._free)}
        needed = np.full((1, len(self.tried)), self.counts[0].least)
        done = np.zeros((len(duration), len(self.tried)), dtype=np.int64)
        for i in self._free:
            done += numbers[i] * value_of(self.gain[i], duration)[:, None]
            if 0 in self.counts[i].within:
                needed = np.maximum(needed, numbers[i])
        for i in self._ends:
            numbers[i], gained = self._given_back(i, numbers, duration, until)
            done += gained
        return Tried(until, value_of(self.gain[0], duration), numbers, done, needed)

    def left(self, tried: Tried, held: IntArray, room: IntArray) -> IntArray:
        """How much room is left for operations of the first kind; ``held``: what each stage holds of a microbatch."""
        found = np.repeat(room[:, None], tried.done.shape[1], axis=1)
        for i, number in tried.numbers.items():
            of = self.counts[i]
            if of.holds:
                found -= of.holds * number * held[:, of.stage, None]
        return found

    def _given_back(
        self, i: int, numbers: Mapping[int, IntArray], duration: IntArray, until: IntArray
    ) -> tuple[IntArray, IntArray]:
        """How many operations that give memory back can have begun, and how much of them can be run."""
        since = self.since[i]
        assert since is not None
        gain, every = value_of(self.gain[i], duration), value_of(self.every[i], duration)
        left = until - value_of(since, duration)
        begun = np.where(left > 0, np.where(every > 0, (left - 1) // np.maximum(every, 1) + 1, self.most), 0)
        number = np.minimum(begun, self.most)[:, None]
        for other in self.counts[i].within:
            if other:
                number = np.minimum(number, numbers[other])
        of_last = left[:, None] - (number - 1) * every[:, None]
        return number, np.where(number > 0, (number - 1) * gain[:, None] + np.minimum(gain[:, None], of_last), 0)


def sums_of(of: Sequence[int]) -> IntArray:
    """What the first layers have together, for each number of layers."""
    return np.array(list(accumulate(of, initial=0)), dtype=np.int64)


def value_of(way: Row, duration: IntArray) -> IntArray:
    """How long a way is on each cut; ``duration``: a row for each."""
    row, constant = way
    found: IntArray = duration @ row + constant
    return found
