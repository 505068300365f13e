"""All cuts whose known bound is below a value, listed by branch and bound over boxes of cuts.

What is known of cuts (:class:`~ppopt.bounds.many_cuts.ManyCuts`) is linear in what lies before the ends of the stages, but for
minima, and for the numbers of operations that fit into a phase. A linear form is least over a box of ends where each of its terms
is least: at the lowest end if it counts so often, at the highest one if it is taken off. So

* a certificate is no less, anywhere in a box, than its least pair of a head and a tail there;
* the idle time of a phase is no less than that of the best numbers of operations which are possible somewhere in the box: those
  of which the least load has room, and of which those that give memory back can have begun. With numbers that are not possible
  the device is said to idle all the time, which is never less.

A box that may have smaller bounds is halved; of a single cut its bound is made. So none with room and a smaller bound is missed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.bounds.cut_list import Listed
from ppopt.bounds.filling import Count
from ppopt.bounds.many_cuts import EXACT, ManyCuts
from ppopt.bounds.many_fillings import ManyFillings, ManyPhases, Row
from ppopt.bounds.ways import Once
from ppopt.clock import Clock
from ppopt.op import Kind
from ppopt.pipeline import IntArray

Values: TypeAlias = npt.NDArray[np.float64]

MOST_NUMBERS = 1000
"""Numbers of operations that are looked at in a phase; one with more says nothing of boxes. Measured: 2 stages on a device, 16
microbatches."""
AT_ONCE = 256
"""Boxes that are looked at together. Measured: 3400 cuts of 56 layers in 8 stages take 4.5 s, with 64 6.9, with 1024 5.8."""
LEARNING = 5e-6
"""Deterministic seconds of a listed cut where certificates are learned. Measured: about as long on an idle machine."""
SECONDS = 2.4e-9
"""Deterministic seconds for a box, for each end and each choice of numbers of operations in a phase. Measured on an idle machine:
27e-6 for 7 ends and 1600 choices."""


def cuts_below(many: ManyCuts, below: int, most: int, clock: Clock) -> Listed | None:
    """The cuts with room whose bound is below that many ticks.

    ``None``: there are more than ``most`` of them, the clock is over, or numbers are too large for this.
    """
    boxes = _BoxBounds(many)
    if not boxes.exact:
        return None
    stages, layers = many.stages, many.layers
    ends = np.arange(stages - 1)
    todo = [(ends[None, :] + 1, ends[None, :] + layers - stages + 1)]
    found, number = list[IntArray](), 0
    while todo:
        low, high = todo.pop()
        if len(low) > AT_ONCE:
            todo.append((low[:-AT_ONCE], high[:-AT_ONCE]))
            low, high = low[-AT_ONCE:], high[-AT_ONCE:]
        clock.charge(boxes.seconds * len(low))
        keep = boxes.least(low, high, below) < below
        low, high = low[keep], high[keep]
        single = np.all(low == high, axis=1)
        if single.any():
            found.append(low[single])
            number += int(single.sum())
        if not single.all():
            todo.append(_halved(low[~single], high[~single]))
        if number > most or clock.over:
            return None
    cuts = np.concatenate([*found, np.zeros((0, stages - 1), dtype=np.int64)])
    bounds = np.concatenate([many.each(cuts[i : i + AT_ONCE]).max(axis=1) for i in range(0, max(len(cuts), 1), AT_ONCE)])
    kept = (bounds < below) & many.fits(cuts)
    return Listed(cuts[kept], bounds[kept], below)


def seconds_of_box(many: ManyCuts) -> float:
    """Deterministic seconds for a box of cuts."""
    choices = 0
    for filling in many.fillings:
        for _, phase in (*filling.first, *filling.last):
            choices += len(_numbers_of(phase, filling.most))
    return SECONDS * max(choices, 1) * many.stages


def _numbers_of(phase: ManyPhases, most: int) -> list[tuple[int, ...]]:
    """The numbers of operations of a phase; none where there are too many."""
    found = list(itertools.islice(_numbers(phase.counts, most, ()), MOST_NUMBERS + 1))
    return found if len(found) <= MOST_NUMBERS else []


def _halved(low: IntArray, high: IntArray) -> tuple[IntArray, IntArray]:
    """Both halves of each box by its widest end; stages have a layer at least."""
    rows, widest = np.arange(len(low)), np.argmax(high - low, axis=1)
    middle = (low[rows, widest] + high[rows, widest]) // 2
    lows, highs = np.concatenate([low, low]), np.concatenate([high, high])
    highs[rows, widest] = middle
    lows[rows + len(low), widest] = middle + 1
    places = np.arange(low.shape[1])
    lows = np.maximum.accumulate(lows - places, axis=1) + places
    highs = np.minimum.accumulate((highs - places)[:, ::-1], axis=1)[:, ::-1] + places
    some = np.all(lows <= highs, axis=1)
    return lows[some], highs[some]


class _Tables:
    """Sums over the first layers, for each number of layers, and the least and the largest of them between two numbers.

    Of the sums that are given all but the first are taken without so often the first one as makes them small: durations of layers
    are much alike, so that what a form says of several of them at an end does not come apart.
    """

    def __init__(self, sums: Sequence[IntArray]) -> None:
        rows = np.array(sums, dtype=np.float64)
        self._often = np.round(rows[:, -1] / max(rows[0, -1], 1.0))
        self._often[0] = 0
        rows = rows - self._often[:, None] * rows[0]
        self.number, layers = rows.shape[0], rows.shape[1]
        self.last, self.largest = rows[:, -1], float(np.abs(rows).max())
        self._least, self._most = np.zeros((2, self.number, layers, layers))
        for low in range(layers):
            self._least[:, low, low:] = np.minimum.accumulate(rows[:, low:], axis=1)
            self._most[:, low, low:] = np.maximum.accumulate(rows[:, low:], axis=1)

    def between(self, low: IntArray, high: IntArray) -> Values:
        """A row for each box: of each table and end the least, then of each the largest."""
        return np.concatenate([of[low, high] for of in (*self._least, *self._most)], axis=1)

    def changed(self, often: Values) -> Values:
        """So often the sums that were given (a row for each) as so often those that are kept."""
        changed = often.copy()
        changed[0] += self._often @ often
        return changed


class _Forms:
    """Linear forms: ``constant``, and so often the sums before each end (``rows``: table by table)."""

    def __init__(self, tables: _Tables, forms: Iterable[tuple[Values, float]]) -> None:
        given = list(forms)
        rows = np.array([tables.changed(row.reshape(tables.number, -1)).ravel() for row, _ in given])
        self._factors = np.ascontiguousarray(np.concatenate([np.maximum(rows, 0), np.minimum(rows, 0)], axis=1).T)
        self._constants = np.array([constant for _, constant in given], dtype=np.float64)
        self.largest = float((tables.largest * np.abs(rows).sum(axis=1)).max() + np.abs(self._constants).max())
        """No number that occurs is larger."""

    def least(self, ends: Values) -> Values:
        """The least of each form in each box; ``ends``: what is :meth:`_Tables.between` them."""
        found: Values = ends @ self._factors + self._constants
        return found


class _BoxBounds:
    """Bounds of boxes of cuts."""

    def __init__(self, many: ManyCuts) -> None:
        self.many = many
        self.times, self.amounts = _Tables(many.time_tables), _Tables(many.amounts)
        of, self._begin = list[tuple[Values, float]](), list[int]()
        for work, heads, tails in many.certified():
            self._begin.append(len(of))
            of += [many.of_ends(((1, work), (1, head), (1, tail))) for head, tail in itertools.product(heads, tails)]
        self._certificates = _Forms(self.times, of)
        self._room = _Forms(self.amounts, map(self._taken, range(len(many.room))))
        self._fillings = [_BoxFilling(self, filling) for filling in many.fillings]
        forms: list[_Forms] = [self._certificates, self._room]
        for filling in self._fillings:
            forms += filling.forms
        self.exact = max(form.largest for form in forms) < EXACT
        """Whether all numbers are exact in floating point."""
        self.seconds = seconds_of_box(many)

    def least(self, low: IntArray, high: IntArray, below: float) -> Values:
        """A bound of each box in ticks: exact enough to tell whether it is below ``below``; infinite where none has room."""
        times, amounts = self.times.between(low, high), self.amounts.between(low, high)
        found: Values = np.minimum.reduceat(self._certificates.least(times), self._begin, axis=1).max(axis=1)
        found[np.any(self._room.least(amounts) > 0, axis=1)] = np.inf
        for filling in self._fillings:
            opened = np.nonzero(found < below)[0]
            if not len(opened):
                break
            found[opened] = np.maximum(found[opened], filling.least(times[opened], amounts[opened]))
        return found

    def _taken(self, device: int) -> tuple[Values, float]:
        """By how much a microbatch and what is always held are beyond the room of a device."""
        stages = [stage for stage, on in enumerate(self.many.device_of) if on == device]
        return self.load([(stage, 1) for stage in stages], stages, 0, device)

    def load(self, held: Sequence[tuple[int, int]], own: Sequence[int], which: int, device: int) -> tuple[Values, float]:
        """By how much so often what stages hold of a microbatch (``which``: from ``F`` on, or until ``W``) and what some always
        hold are beyond the room of a device."""
        often = np.zeros((3, self.many.stages))
        for stage, n in held:
            often[which, stage] += n
        often[2, list(own)] += 1
        last = sum(often[of, -1] * self.many.amounts[of][-1] for of in range(3))
        return (often[:, :-1] - often[:, 1:]).ravel(), float(last - self.many.room[device])


class _BoxFilling:
    """What a limit of memory says of one device in boxes.

    The forwards count as work before the moment of each phase, and the backwards as work behind it: what is done of them before
    is taken off the one, what is done behind it off the other.
    """

    def __init__(self, bounds: _BoxBounds, filling: ManyFillings) -> None:
        before = filling.work_of(Kind.F, Once.ALL_GATHER)
        behind = filling.work_of(Kind.I, Kind.W, Once.REDUCE_SCATTER, Once.OPTIMIZER)
        first = ((j, _BoxPhase.of(bounds, filling, phase, before, 0)) for j, phase in filling.first)
        last = ((j, _BoxPhase.of(bounds, filling, phase, behind, 1)) for j, phase in filling.last)
        self._first, self._last = ([(j, phase) for j, phase in of if phase is not None] for of in (first, last))
        of_ends, stages = bounds.many.of_ends, filling.stages
        self._rest = _Forms(bounds.times, (of_ends(((1, behind), (1, filling.tail))), of_ends(((1, before), (1, filling.head)))))
        full = ([(s, filling.most) for s in stages[: j + 1]] for j in range(len(stages)))
        self._full = _Forms(bounds.amounts, (bounds.load(of, stages, 0, filling.device) for of in full))
        self.forms: list[_Forms] = [
            self._rest,
            self._full,
            *(form for _, phase in (*self._first, *self._last) for form in phase.forms),
        ]

    def least(self, times: Values, amounts: Values) -> Values:
        """A bound of each box."""
        rest, full = self._rest.least(times), self._full.least(amounts) > 0
        first = [(j, phase.least(times, amounts)) for j, phase in self._first]
        last = [(j, phase.least(times, amounts)) for j, phase in self._last]
        found = np.zeros(len(rest))
        for one in (*(one + rest[:, 0] for _, one in first), *(other + rest[:, 1] for _, other in last)):
            np.maximum(found, one, out=found)
        for (i, one), (j, other) in itertools.product(first, last):
            np.maximum(found, np.where(full[:, min(i, j)], one + other, 0), out=found)
        return found


class _BoxPhase:
    """How little a device can do in a phase, of boxes, with the work that counts in it."""

    def __init__(
        self, bounds: _BoxBounds, filling: ManyFillings, phase: ManyPhases, work: Row, which: int, numbers: list[tuple[int, ...]]
    ) -> None:
        of_ends, counts = bounds.many.of_ends, phase.counts
        own = [(1, phase.way), (1, work)]
        idle = [[*own, *((-n, gain) for n, gain in zip(row, phase.gain, strict=True))] for row in numbers]
        loads = ([(of.stage, n * of.holds) for n, of in zip(row, counts, strict=True)] for row in numbers)
        self._idle = _Forms(bounds.times, map(of_ends, idle))
        self._way = _Forms(bounds.times, [of_ends(own)])
        self._load = _Forms(bounds.amounts, (bounds.load(of, filling.stages, which, filling.device) for of in loads))
        self._limits = [_Limit(bounds, phase, place, numbers, idle) for place, of in enumerate(counts) if of.since is not None]
        self.forms = [self._idle, self._way, self._load, *(form for limit in self._limits for form in limit.forms)]

    @classmethod
    def of(cls, bounds: _BoxBounds, filling: ManyFillings, phase: ManyPhases, work: Row, which: int) -> _BoxPhase | None:
        """``None``: there are too many numbers of operations."""
        numbers = _numbers_of(phase, filling.most)
        return cls(bounds, filling, phase, work, which, numbers) if numbers else None

    def least(self, times: Values, amounts: Values) -> Values:
        """Idle ticks and work of each box at least."""
        idle = self._idle.least(times)
        impossible = self._load.least(amounts) > 0
        for limit in self._limits:
            np.maximum(idle, limit.partly.least(times), out=idle)
            impossible |= limit.impossible(times)
        idle[impossible] = np.inf
        found: Values = np.minimum(idle.min(axis=1), self._way.least(times)[:, 0])
        return found


class _Limit:
    """How early operations that give memory back can begin in a phase: those of one count, by its place."""

    def __init__(
        self,
        bounds: _BoxBounds,
        phase: ManyPhases,
        place: int,
        numbers: Sequence[tuple[int, ...]],
        idle: Sequence[list[tuple[int, Row]]],
    ) -> None:
        of_ends, since = bounds.many.of_ends, phase.since[place]
        assert since is not None
        self._number = np.array([row[place] for row in numbers])

        def late(n: int) -> list[tuple[int, Row]]:
            """By how much the last one of ``n`` begins behind the end of the phase."""
            return [(1, since), (n - 1, phase.every[place]), (-1, phase.way)]

        gain = (1, phase.gain[place])
        self._late = _Forms(bounds.times, (of_ends(late(n)) for n in range(1, int(self._number.max()) + 1)))
        self.partly = _Forms(
            bounds.times,
            (of_ends([*ways, *([*late(n), gain] if n else [])]) for n, ways in zip(self._number.tolist(), idle, strict=True)),
        )
        """Idle time where the last one is run in part."""
        self.forms = [self._late, self.partly]

    def impossible(self, times: Values) -> npt.NDArray[np.bool_]:
        """Which numbers are not possible anywhere in a box."""
        late = self._late.least(times) >= 0
        late = np.concatenate([np.zeros((len(late), 1), dtype=np.bool_), late], axis=1)
        found: npt.NDArray[np.bool_] = late[:, self._number]
        return found


def _numbers(counts: Sequence[Count], most: int, known: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The numbers of operations of a phase, within each other."""
    if len(known) == len(counts):
        yield known
        return
    of = counts[len(known)]
    for n in range(of.least, min((known[i] for i in of.within), default=most) + 1):
        yield from _numbers(counts, most, (*known, n))
