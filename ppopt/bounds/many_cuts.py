"""The bounds of many cuts at once: what certificates and limits of memory say of each, device by device.

The numbers are those of :meth:`~ppopt.bounds.certificates.Certificate.value` and :meth:`~ppopt.bounds.filling.Filling.value`, for
hundreds of cuts in the time that one takes there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from ppopt.bounds.certificates import Certificate
from ppopt.bounds.filling import Filling, Held
from ppopt.bounds.many_fillings import ManyFillings, Row, sums_of
from ppopt.bounds.many_recomputing import ManyRecomputing
from ppopt.bounds.ways import Once, Part, Way
from ppopt.op import Kind
from ppopt.pipeline import IntArray

EXACT = 2**52
"""Numbers below this are exact in floating point."""
AT_ONCE = 2**16
"""Cuts of which all certificates are asked at once, where there are many. Measured: with half or twice as many it takes as
long."""


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
        each = {kind: sums_of(of) for kind, of in (once or {}).items()}
        self._times: dict[Kind | Once, IntArray] = {kind: sums_of(of) for kind, of in times.items()} | each
        self._first: dict[Kind | Once, IntArray] = {kind: sums_of(of) for kind, of in (first or times).items()} | each
        least = memory.least
        self.amounts = sums_of(least.held), sums_of(least.kept), sums_of(least.own)
        """What the first layers hold of a microbatch at least, what is kept of that until ``W``, and always, for each number of
        layers."""
        self._place = {of: place for place, of in enumerate(itertools.product(self._times, range(self.stages)))}
        self.fillings = [ManyFillings(self, filling, scale) for filling in fillings]
        self._recomputing = None if memory.savings is None else ManyRecomputing(self, memory, memory.savings)
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
    def recomputes(self) -> bool:
        """Whether it is open what recomputes, and bounds count it."""
        return self._recomputing is not None

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
        again = None if self._recomputing is None else self._recomputing.on(ends)
        for filling in self.fillings:
            room = self.room[filling.device] - own[:, filling.stages].sum(axis=1)
            value = filling.value(duration, held, kept, room)
            if again is not None:
                np.maximum(value, again.value(filling, duration, room), out=value)
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
        return (self.of_stages(sums, ends) for sums in self.amounts)

    def of_stages(self, sums: IntArray, ends: IntArray) -> IntArray:
        """What each stage (a column) of each cut has of something; ``sums``: what the first layers have, for each number of
        layers."""
        edges = self._edges(ends)
        found: IntArray = sums[edges[:, 1:]] - sums[edges[:, :-1]]
        return found

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


def ends_of(counts: Sequence[int]) -> list[int]:
    """Where the stages of a cut end, but for the last one; ``counts``: the number of layers of each stage."""
    return list(accumulate(counts))[:-1]


def counts_of(ends: IntArray, layers: int) -> tuple[int, ...]:
    """The number of layers of each stage of a cut that ends there (:func:`ends_of`)."""
    return tuple(np.diff(ends, prepend=0, append=layers).tolist())
