"""The bounds of many cuts at once: what certificates and limits of memory say of each, device by device.

The numbers are those of :meth:`~ppopt.bounds.certificates.Certificate.value` and :meth:`~ppopt.bounds.filling.Filling.value`, for
hundreds of cuts in the time that one takes there. Of how much a device can do in a phase only some numbers of operations are
tried: more of the first kind that fit, and more of those that give memory back, are never worse.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.bounds.certificates import Certificate
from ppopt.bounds.filling import Filling, Held, Phase
from ppopt.bounds.ways import Once, Part, Way
from ppopt.op import Kind
from ppopt.pipeline import IntArray

Row: TypeAlias = tuple[IntArray, int]
"""A way: how often each duration counts, kind by kind and stage by stage, and a constant."""

EXACT = 2**52
"""Numbers below this are exact in floating point."""
AT_ONCE = 2**16
"""Cuts of which all certificates are asked at once, where there are many. Measured: with half or twice as many it takes as
long."""
MOST_TRIED = 1000
"""Numbers of operations that are tried in a phase; one with more is left out. Measured: 4 stages on a device, 16 microbatches."""


class ManyCuts:
    """What is known of the cuts of a pipeline of one route and alike microbatches.

    ``times``: per kind the ticks of each layer; ``first``: those in the first stage, if they are others; ``more``: ticks that an
    operation of a stage takes beside; ``once``: what each layer takes once per step; ``device_of``: that of each stage;
    ``scale``: ticks here in one of the ``fillings``.
    """

    def __init__(
        self,
        times: Mapping[Kind, Sequence[int]],
        device_of: Sequence[int],
        memory: Held,
        fillings: Sequence[Filling],
        scale: int = 1,
        *,
        first: Mapping[Kind, Sequence[int]] | None = None,
        more: Mapping[Part, int] | None = None,
        once: Mapping[Once, Sequence[int]] | None = None,
    ) -> None:
        self.stages, self.layers = len(device_of), len(memory.held)
        self.device_of, self.room, self._more = np.array(device_of), memory.room, more or {}
        each = {kind: _sums(of) for kind, of in (once or {}).items()}
        self._times: dict[Kind | Once, IntArray] = {kind: _sums(of) for kind, of in times.items()} | each
        self._first: dict[Kind | Once, IntArray] = {kind: _sums(of) for kind, of in (first or times).items()} | each
        self.amounts = _sums(memory.held), _sums(memory.kept), _sums(memory.own)
        """What the first layers hold of a microbatch, what is kept of that until ``W``, and always, for each number of layers."""
        self._place = {of: place for place, of in enumerate(itertools.product(self._times, range(self.stages)))}
        self.fillings = [ManyFillings(self, filling, scale) for filling in fillings]
        self._heads, self._tails = _Leasts(self), _Leasts(self)
        self._work: list[Row] = []
        self._of_device: list[int] = []
        self._known: dict[Certificate, None] = {}

    def learn(self, certificate: Certificate) -> None:
        """A certificate that holds for every cut, of one span."""
        assert certificate.spans == 1, "certificates of several spans are of no device"
        if certificate in self._known:
            return
        self._known[certificate] = None
        self._work.append(self.row(certificate.work))
        stages = [part.stage for part, _ in certificate.work.times]
        self._of_device.append(int(self.device_of[stages[0] if stages else 0]))
        self._heads.add(certificate.heads)
        self._tails.add(certificate.tails)

    @property
    def parts(self) -> Sequence[tuple[Kind | Once, int]]:
        """Kinds and stages in the order of rows."""
        return list(self._place)

    def row(self, way: Way, scale: int = 1) -> Row:
        """How often each duration counts in a way, and its constant; ``scale``: ticks here in one of the way."""
        found = np.zeros(len(self._place), dtype=np.int64)
        for part, n in way.times:
            found[self._place[part.kind, part.stage]] += n
        return found, int(way.constant * scale)

    @property
    def time_tables(self) -> list[IntArray]:
        """What the first layers take, for each number of layers: per kind, once per step, and in the first stage, if that is
        something else."""
        return [*self._times.values(), *(self._first.values() if self._others_first else ())]

    @property
    def _others_first(self) -> bool:
        return any(not np.array_equal(self._first[kind], of) for kind, of in self._times.items())

    def of_ends(self, ways: Iterable[tuple[float, Row]]) -> tuple[npt.NDArray[np.float64], float]:
        """So often some ways as a constant and what lies before ends: of each of :attr:`time_tables` a number for each end."""
        kinds = len(self._times)
        often, constant = np.zeros(len(self._place)), 0.0
        for n, (row, fixed) in ways:
            often += n * row
            constant += n * fixed
        each = often.reshape(kinds, self.stages)
        constant += sum(each[list(self._times).index(part.kind), part.stage] * more for part, more in self._more.items())
        constant += sum(of[-1] * self._last(kind) for of, kind in zip(each, self._times, strict=True))
        ends = each[:, :-1] - each[:, 1:]
        if self._others_first:
            first = np.zeros_like(ends)
            first[:, 0], ends[:, 0] = each[:, 0], -each[:, 1]
            ends = np.concatenate([ends, first])
        return ends.ravel(), constant

    def by_layers(self, ways: Iterable[Row]) -> tuple[IntArray, int]:
        """Some ways, one after the other, as a constant and a sum over the ends: ``[end, layers before it]``."""
        often, constant = self.of_ends((1, way) for way in ways)
        tables = np.array(self.time_tables)
        found: IntArray = np.einsum("te,tl->el", often.astype(np.int64).reshape(len(tables), -1), tables)
        return found, int(constant)

    def of_ways(self, ends: IntArray, ways: Iterable[Row]) -> IntArray:
        """What some ways (a column for each) take on each cut, in ticks."""
        return _products(self.durations(ends), list(ways))

    def _last(self, kind: Kind | Once) -> int:
        return int((self._times if self.stages > 1 else self._first)[kind][-1])

    def certified(self, since: int = 0) -> Iterator[tuple[Row, list[Row], list[Row]]]:
        """What was learned, behind the first ones: the work of each certificate, its heads and its tails."""
        for certificate in itertools.islice(self._known, since, None):
            yield (
                self.row(certificate.work),
                [self.row(way) for way in certificate.heads],
                [self.row(way) for way in certificate.tails],
            )

    def of(self, counts: Sequence[int]) -> IntArray:
        """The bounds of the devices for one cut: the number of layers of each stage."""
        bounds: IntArray = self.each(np.array([ends_of(counts)], dtype=np.int64))[0]
        return bounds

    @property
    def learned(self) -> int:
        """The number of certificates."""
        return len(self._work)

    def each(self, ends: IntArray, only: Sequence[int] | None = None) -> IntArray:
        """The bounds of the devices, a row for each cut, in ticks.

        ``ends``: a row for each cut, where its stages end: a number of layers for each stage but the last. ``only``: what these
        certificates alone say, by their places in the order in which they were learned, without limits of memory.
        """
        chosen = range(self.learned) if only is None else only
        duration = self.durations(ends)
        found = np.zeros((len(ends), len(self.room)), dtype=np.int64)
        if chosen:
            value = self._certified(duration, chosen)
            for place, i in enumerate(chosen):
                device = self._of_device[i]
                np.maximum(found[:, device], value[:, place], out=found[:, device])
        if only is not None:
            return found
        held, kept, own = self.held(ends)
        for filling in self.fillings:
            room = self.room[filling.device] - own[:, filling.stages].sum(axis=1)
            value = filling.value(duration, held, kept, room)
            np.maximum(found[:, filling.device], value, out=found[:, filling.device])
        return found

    def _certified(self, duration: IntArray, chosen: Sequence[int]) -> IntArray:
        """What each of these certificates (a column) says."""
        value = _products(duration, [self._work[i] for i in chosen])
        value += self._heads.of(duration, chosen) + self._tails.of(duration, chosen)
        return value

    def fits(self, ends: IntArray) -> npt.NDArray[np.bool_]:
        """Whether every device of each cut has room for its weights and a microbatch."""
        held, _, own = self.held(ends)
        taken = np.column_stack([(held + own)[:, self.device_of == device].sum(axis=1) for device in range(len(self.room))])
        enough: npt.NDArray[np.bool_] = np.all(taken <= np.array(self.room), axis=1)
        return enough

    def _edges(self, ends: IntArray) -> IntArray:
        """Where the first stage begins, and where each one ends."""
        return np.column_stack([np.zeros(len(ends), dtype=np.int64), ends, np.full(len(ends), self.layers)])

    def held(self, ends: IntArray) -> Iterator[IntArray]:
        """What each stage (a column) of each cut holds of a microbatch, what is kept of that until ``W``, and its weights."""
        edges = self._edges(ends)
        return (sums[edges[:, 1:]] - sums[edges[:, :-1]] for sums in self.amounts)

    def durations(self, ends: IntArray) -> IntArray:
        """What each kind of operation takes in each stage of each cut, and the stage once per step, in the order of
        :attr:`parts`."""
        edges = self._edges(ends)
        found = np.empty((len(edges), len(self._place)), dtype=np.int64)
        for place, (kind, sums) in enumerate(self._times.items()):
            at, own = sums[edges], found[:, place * self.stages : (place + 1) * self.stages]
            np.subtract(at[:, 1:], at[:, :-1], out=own)
            own[:, 0] = self._first[kind][edges[:, 1]]
            own += [self._more.get(Part(kind, stage), 0) for stage in range(self.stages)]
        return found


class _Leasts:
    """The least of some ways, for each of many certificates."""

    def __init__(self, cuts: ManyCuts) -> None:
        self._cuts, self._ways = cuts, list[list[Row]]()

    def add(self, ways: Sequence[Way]) -> None:
        self._ways.append([self._cuts.row(way) for way in ways])

    def of(self, duration: IntArray, chosen: Sequence[int]) -> IntArray:
        """That of each of these certificates, a column for each."""
        ways = [self._ways[i] for i in chosen]
        begin = list(accumulate(map(len, ways), initial=0))[:-1]
        return np.minimum.reduceat(_products(duration, list(itertools.chain(*ways))), begin, axis=1)


def _products(duration: IntArray, ways: Sequence[Row]) -> IntArray:
    """What each way (a column) takes, with these durations of each cut. In floating point where that is exact, as this takes a
    tenth of the time."""
    often, constants = np.array([row for row, _ in ways]), np.array([constant for _, constant in ways])
    if int(duration.max(initial=0)) * int(np.abs(often).sum(axis=1).max()) < EXACT:
        found: IntArray = (duration.astype(np.float64) @ often.T.astype(np.float64)).astype(np.int64)
    else:
        found = duration @ often.T
    found += constants
    return found


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
        head, tail, work = (_value(way, duration) for way in (self.head, self.tail, self.work))
        first = [(j, one.least(duration, held, room)) for j, one in self.first]
        last = [(j, one.least(duration, kept, room)) for j, one in self.last]
        found = np.zeros_like(work)
        for one in (*(one + tail for _, one in first), *(head + other for _, other in last)):
            np.maximum(found, one, out=found)
        for i, one in first:
            for j, other in last:
                full = self.most * held[:, self.stages[: min(i, j) + 1]].sum(axis=1) > room
                np.maximum(found, np.where(full, one + other, 0), out=found)
        found += work
        return found


class ManyPhases:
    """How little a device can do in a phase, for the numbers of operations that are tried."""

    def __init__(self, cuts: ManyCuts, phase: Phase, most: int, scale: int) -> None:
        self.counts, self._most = phase.counts, most
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
        return math.comb(self._most + len(self._free), len(self._free)) if falling else (self._most + 1) ** len(self._free)

    def _each(self, known: Mapping[int, int]) -> Iterator[list[int]]:
        """Choices of the numbers that are free, within each other."""
        if len(known) == len(self._free):
            yield list(known.values())
            return
        of = self.counts[self._free[len(known)]]
        for n in range(of.least, min((known[i] for i in of.within if i in known), default=self._most) + 1):
            yield from self._each({**known, self._free[len(known)]: n})

    def least(self, duration: IntArray, held: IntArray, room: IntArray) -> IntArray:
        """Idle ticks of each cut at least."""
        assert self.tried is not None
        until = _value(self.way, duration)
        numbers: dict[int, IntArray] = {i: self.tried[:, place][None, :] for place, i in enumerate(self._free)}
        first = self.counts[0]
        needed = np.full((1, len(self.tried)), first.least)
        left = np.broadcast_to(room[:, None], (len(duration), len(self.tried)))
        done = np.zeros(left.shape, dtype=np.int64)
        for i in self._free:
            of = self.counts[i]
            left = left - of.holds * numbers[i] * held[:, of.stage, None]
            done = done + numbers[i] * _value(self.gain[i], duration)[:, None]
            if 0 in of.within:
                needed = np.maximum(needed, numbers[i])
        for i in self._ends:
            number, gained = self._given_back(i, numbers, duration, until)
            numbers[i] = number
            left = left + number * held[:, self.counts[i].stage, None]
            done = done + gained
        each = held[:, first.stage, None]
        most = np.where(each > 0, np.minimum(self._most, left // np.maximum(each, 1)), self._most)
        possible = (left >= 0) & (most >= needed)
        done = np.where(possible, done + most * _value(self.gain[0], duration)[:, None], -1)
        until -= done.max(axis=1)
        return until

    def _given_back(
        self, i: int, numbers: Mapping[int, IntArray], duration: IntArray, until: IntArray
    ) -> tuple[IntArray, IntArray]:
        """How many operations that give memory back can have begun, and how much of them can be run."""
        since = self.since[i]
        assert since is not None
        gain, every = _value(self.gain[i], duration), _value(self.every[i], duration)
        left = until - _value(since, duration)
        begun = np.where(left > 0, np.where(every > 0, (left - 1) // np.maximum(every, 1) + 1, self._most), 0)
        number = np.minimum(begun, self._most)[:, None]
        for other in self.counts[i].within:
            if other:
                number = np.minimum(number, numbers[other])
        of_last = left[:, None] - (number - 1) * every[:, None]
        return number, np.where(number > 0, (number - 1) * gain[:, None] + np.minimum(gain[:, None], of_last), 0)


def ends_of(counts: Sequence[int]) -> list[int]:
    """Where the stages of a cut end, but for the last one; ``counts``: the number of layers of each stage."""
    return list(accumulate(counts))[:-1]


def counts_of(ends: IntArray, layers: int) -> tuple[int, ...]:
    """The number of layers of each stage of a cut that ends there (:func:`ends_of`)."""
    return tuple(np.diff(ends, prepend=0, append=layers).tolist())


def _sums(of: Sequence[int]) -> IntArray:
    return np.array(list(accumulate(of, initial=0)), dtype=np.int64)


def _value(way: Row, duration: IntArray) -> IntArray:
    row, constant = way
    found: IntArray = duration @ row + constant
    return found
