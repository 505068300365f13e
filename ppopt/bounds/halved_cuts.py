"""All cuts whose known bound is below a value, where memory is not limited: two halves of each cut meet in the middle.

A certificate of one head and one tail (:mod:`ppopt.bounds.certificates`) is linear in what lies before the ends of the stages. So
it is a sum over the ends, and of a cut whose middle stage ends at one place it is what the ends before that place say, and what
those behind it say. There are few ways to place the ends of one half: for 36 layers in 16 stages, which have 3.2e9 cuts, 3
million of all middles together. For each second half those first halves are looked up with which every device stays below the
value (Horowitz and Sahni, "Computing partitions with applications to the knapsack problem", 1974). The work of the devices has
one sum, which leaves no device much less than the value where all of them are to be below it: first halves are sorted by two
devices, and few of them are looked at. What all certificates say is asked of those that are found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.bounds.certified_cuts import CertifiedCuts
from ppopt.bounds.cut_list import Listed
from ppopt.bounds.listed_cuts import LEARNING
from ppopt.bounds.many_cuts import AT_ONCE, EXACT, ManyCuts
from ppopt.bounds.many_fillings import Row
from ppopt.clock import Clock
from ppopt.compiled import available, expect, loop
from ppopt.op import Kind
from ppopt.pipeline import IntArray

SmallInts: TypeAlias = npt.NDArray[np.int16]

SECONDS = 1e-7, 1e-10
"""Seconds for a half, and for a cut. Measured on an idle machine: 36 layers in 16 stages take 1.0 s, 40 layers 3.5 s."""
ROOM = 2**20
"""Pairs of halves that are found at once, at least."""
PAIRS = 2**26
"""Pairs of halves between two looks at the clock, which take 7 ms by what a cut takes."""
ASKING = 2e-6
"""Deterministic seconds of a cut that halves leave. Measured: as long on an idle machine."""
MOST_UNCOMPILED = 10**5
"""Cuts that Python alone may look for; so numba is not loaded for few. Measured: 77,520 of 21 layers in 8 stages take 0.6 s."""
MOST_HALVES = 4 * 10**6
"""Ways to place the ends of one half, at most: a table of them takes 50 bytes for each where there are 4 devices."""


def seconds_of_halves(many: ManyCuts) -> float:
    """About how long :func:`cuts_of_halves` takes; infinite where there are too many halves, or where nothing compiles its loop
    and cuts are many."""
    first, second = _halves(many.stages)
    middles = range(first + 1, many.layers - second)
    each = [(math.comb(end - 1, first), math.comb(many.layers - 1 - end, second)) for end in middles]
    cuts = math.comb(many.layers - 1, many.stages - 1)
    if max(map(max, each), default=0) > MOST_HALVES or (cuts > MOST_UNCOMPILED and not available()):
        return math.inf
    return SECONDS[0] * sum(map(sum, each)) + SECONDS[1] * cuts


def cuts_of_halves(many: ManyCuts, below: int, most: int, clock: Clock, learn: Callable[[IntArray], object]) -> Listed | None:
    """The cuts whose bound is below that many ticks; if these are more than ``most``, those below fewer ticks
    (:attr:`~ppopt.bounds.cut_list.Listed.below`).

    ``learn``: lets ``many`` learn from a cut (its ends); it is asked for that of the least bound, until that brings nothing new,
    before cuts are left out because they are too many, and at the end.

    ``None``: the clock is over, there is no certificate to begin with, or numbers are too large for this.
    """
    halves = _Halves.of(many)
    if halves is None or below >= EXACT:
        return None
    found = Listed(np.zeros((0, many.stages - 1), dtype=np.int64), np.zeros(0, dtype=np.int64), below)
    certified, sharpened = CertifiedCuts(many), False
    for ends in halves.below(found, clock):
        clock.charge(ASKING * len(ends))
        bounds = certified.bounds(ends)
        small = bounds < found.below
        found.add(ends[small], bounds[small])
        if not sharpened or len(found.ends) > most:
            _sharpen(many, found, learn, clock)
            _shorten(found, most)
            certified, sharpened = CertifiedCuts(many), True
    _sharpen(many, found, learn, clock)
    _shorten(found, most)
    return None if clock.over else found


def _sharpen(many: ManyCuts, found: Listed, learn: Callable[[IntArray], object], clock: Clock) -> None:
    """Learn from the cut of the least bound, until that brings nothing new."""
    known = -1
    while known < many.learned and len(found.ends) and not clock.over:
        known = many.learned
        learn(found.ends[int(np.argmin(found.bounds))])
        found.raised(many, known)
        clock.charge(LEARNING * len(found.ends))


def _shorten(found: Listed, most: int) -> None:
    """Keep no more than ``most`` cuts, of the least bounds."""
    if len(found.ends) > most:
        found.shorten(int(np.partition(found.bounds, most)[most]))


def _halves(stages: int) -> tuple[int, int]:
    """How many ends there are before that of the middle stage, and behind it."""
    first = (stages - 1) // 2
    return first, stages - 2 - first


@dataclass(frozen=True)
class _Halves:
    """What the ends of each half say, a row for each way to place them, a column for each certificate.

    Ends are sorted by the last one, so that those before a middle come first: the first half counts from the first layer, the
    second one from the last layer on. ``middle``: ``[certificate, end]``, with the constants.
    """

    layers: int
    first: SmallInts
    second: SmallInts
    of_first: IntArray
    of_second: IntArray
    middle: IntArray

    @classmethod
    def of(cls, many: ManyCuts) -> _Halves | None:
        """``None``: there is no certificate of one head and one tail, or a number is too large."""
        layers, (before, behind) = many.layers, _halves(many.stages)
        forms = _forms(many)
        if not forms or max(int(np.abs(of).sum()) for _, of in forms) * layers >= EXACT:
            return None
        each = np.array([of for _, of in forms])
        first, second = _placed(layers - behind - 2, before), _placed(layers - before - 2, behind)
        of_first = sum((each[:, j, first[:, j]].T for j in range(before)), np.zeros((len(first), len(forms)), dtype=np.int64))
        at = (each[:, -1 - j, layers - second[:, j]].T for j in range(behind))
        of_second = sum(at, np.zeros((len(second), len(forms)), dtype=np.int64))
        constants = np.array([constant for constant, _ in forms])
        return cls(layers, first, second, of_first, of_second, each[:, before] + constants[:, None])

    def below(self, limit: Listed, clock: Clock) -> Iterator[IntArray]:
        """The ends of cuts of which every certificate that is known here is below ``limit.below``, which may be lowered
        meanwhile: those first whose devices take the least together."""
        before, behind = self.first.shape[1], self.second.shape[1]
        for end in self._middles():
            limits = limit.below - self.middle[:, end]
            of_first = self.of_first[: math.comb(end - 1, before)]
            of_second = self.of_second[: math.comb(self.layers - 1 - end, behind)]
            (first,) = np.nonzero(np.all(of_first < limits - of_second.min(axis=0), axis=1))
            of_first = of_first[first] + self.middle[:, end]
            (second,) = np.nonzero(np.all(of_second < limit.below - of_first.min(axis=0, initial=limit.below), axis=1))
            of_second = of_second[second]
            if len(first) and len(second):
                for pairs in _pairs(of_first, of_second, limit, clock):
                    for at in range(0, len(pairs[0]), AT_ONCE):
                        i, j = (of[at : at + AT_ONCE] for of in pairs)
                        mirrored = self.layers - self.second[second[j], ::-1].astype(np.int64)
                        yield np.column_stack([self.first[first[i]], np.full(len(i), end), mirrored])
            if clock.over:
                return

    def _middles(self) -> list[int]:
        """Where the middle stage may end, first where the devices take the least together."""
        before, behind = self.first.shape[1], self.second.shape[1]
        first, second = (np.minimum.accumulate(of.sum(axis=1)) for of in (self.of_first, self.of_second))

        def least(end: int) -> int:
            places = math.comb(end - 1, before) - 1, math.comb(self.layers - 1 - end, behind) - 1
            return int(first[places[0]] + self.middle[:, end].sum() + second[places[1]])

        return sorted(range(before + 1, self.layers - behind), key=least)


def _forms(many: ManyCuts) -> list[tuple[int, IntArray]]:
    """Of each device the certificate of one head and one tail that has the most operations as work, and says the most of stages
    with as many layers each, as a constant, and what it says ``[end, layers before it]``."""
    even = np.arange(1, many.stages)[None, :] * many.layers // many.stages
    operations = np.array([isinstance(kind, Kind) for kind, _ in many.parts])
    best: dict[int, tuple[tuple[int, int], Sequence[Row]]] = {}
    for work, heads, tails in many.certified():
        if len(heads) == len(tails) == 1 and work[0].any():
            device = int(many.device_of[int(np.flatnonzero(work[0])[0]) % many.stages])
            ways = work, heads[0], tails[0]
            own = (int(work[0][operations].sum()), int(many.of_ways(even, ways).sum())), ways
            best[device] = max(best.get(device, own), own, key=lambda of: of[0])
    each = (many.by_layers(ways) for _, (_, ways) in sorted(best.items()))
    return [(constant, found) for found, constant in each]


def _placed(most: int, number: int) -> SmallInts:
    """All ways to place so many ends behind 1 to ``most`` layers, a row for each, sorted by the last end."""
    rows = np.zeros((1, 0), dtype=np.int16)
    for placed in range(1, number + 1):
        lasts = range(placed, most - number + placed + 1)
        each = [math.comb(last - 1, placed - 1) for last in lasts]
        rows = np.column_stack([np.concatenate([rows[:n] for n in each]), np.repeat(np.array(lasts, dtype=np.int16), each)])
    return rows


def _pairs(of_first: IntArray, of_second: IntArray, limit: Listed, clock: Clock) -> Iterator[tuple[IntArray, IntArray]]:
    """Places of first and second halves that are below the limit together."""
    by_first = np.argsort(of_first[:, 0], kind="stable")
    groups = max(math.isqrt(len(by_first) // 8), 1)
    group = np.arange(len(by_first)) * groups // len(by_first)
    order = by_first[np.lexsort((of_first[by_first, -1], group))]
    begin = np.searchsorted(group, np.arange(groups + 1))
    lowest = of_first[by_first[begin[:-1]], 0]
    highest = of_first[by_first[begin[1:] - 1], 0]
    table = begin, lowest, highest, np.ascontiguousarray(of_first[order, -1]), np.ascontiguousarray(of_first[order]).ravel()
    others, forms, least = np.ascontiguousarray(of_second).ravel(), of_first.shape[1], int(of_first.sum(axis=1).min())
    room = max(ROOM, 2 * len(order))
    found, state = (np.zeros(room, np.int64), np.zeros(room, np.int64)), np.zeros(2, np.int64)
    expect(groups * len(of_second), pairs)
    while state[1] < len(of_second) and not clock.over:
        before = int(state[1])
        until = min(before + max(PAIRS // len(order), 1), len(of_second))
        sizes = forms, limit.below, least, until, room
        pairs(groups * (until - before), 4 * forms * EXACT, sizes, table, others, *found, state)
        clock.charge(SECONDS[1] * len(order) * int(state[1] - before))
        if state[0]:
            yield order[found[0][: state[0]]], found[1][: state[0]].copy()


def first_at(values: Any, low: int, high: int, least: int) -> int:
    """The first place from ``low`` to ``high`` whose value is no less; values ascend."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


@loop(2e-6, ("first", "second", "state"), (first_at,))
def pairs(sizes: Any, table: Any, others: Any, first: Any, second: Any, state: Any) -> None:
    """Halves that are below a limit together, from second half ``state[1]`` on; how many there are is in ``state[0]`` then.

    It ends before ``until``, where there may be no room for what one more second half has. First halves are in groups by the
    first certificate, of which each has the lowest and the highest value, and in each by the last certificate.
    """
    forms, limit, least, until, room = sizes
    begin, lowest, highest, last, rows = table
    number, count = state[1], 0
    while number < until and count + begin[len(begin) - 1] <= room:
        own = number * forms
        slack = forms * limit - least
        for form in range(forms):
            slack -= others[own + form]
        number += 1
        if slack <= 0:
            continue
        high = limit - others[own]
        group = first_at(highest, 0, len(highest), high - slack)
        while group < len(lowest) and lowest[group] < high:
            end = begin[group + 1]
            top = limit - others[own + forms - 1]
            place = first_at(last, begin[group], end, top - slack)
            while place < end and last[place] < top:
                good = True
                for form in range(forms - 1):
                    if rows[place * forms + form] + others[own + form] >= limit:
                        good = False
                        break
                if good:
                    first[count] = place
                    second[count] = number - 1
                    count += 1
                place += 1
            group += 1
    state[0], state[1] = count, number
