"""A schedule with a part that can be repeated: one object, a schedule for every number of microbatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppopt.constraints import FamilyGraph, operations
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Order, Schedule, Transfers
from ppopt.timing import left_shifted, time_order

_SETTLED = 12
"""Periods after which the earliest times repeat, more often than not."""


@dataclass(frozen=True, eq=False)
class Periodic:
    """A schedule of few microbatches in three blocks per device: a beginning, a period of ``step`` microbatches, an end.

    Of every family the beginning has ``first`` operations, the period the next ``step``, the end the rest; a device runs the
    blocks one after the other, and the period takes it at most ``period`` ticks from its first start.

    *Expansion.* The period is repeated, each copy ``period`` later and ``step`` microbatches further, and the end moves on by
    as much. After every copy a device has started as many operations of each family as after the copy before, and ``step``
    more: it holds the same memory. Data arrives in time as :func:`relations` demands. So every expansion is a schedule,
    ``period`` longer for every ``step`` more microbatches of each route.
    """

    graph: FamilyGraph
    start: tuple[IntArray, ...]
    """Per family, by microbatch of its route, in ticks; from 0."""
    first: tuple[int, ...]
    """Per family, how many operations the beginning has."""
    period: int
    step: int
    shown: tuple[tuple[int, int], ...] = ()
    """Of its graph: numbers of microbatches, and what their period is at least, in ticks."""

    @cached_property
    def makespan(self) -> int:
        """Ticks, of the schedule as it is."""
        return max(int(row[-1]) + time for row, time in zip(self.start, self.graph.duration, strict=True))

    @property
    def microbatches(self) -> tuple[int, ...]:
        """Per route, of the schedule as it is."""
        of = dict(zip((family.route for family in self.graph.families), map(len, self.start), strict=True))
        return tuple(of[route] for route in sorted(of))

    def holds(self) -> bool:
        """Whether every expansion keeps the devices', the links' and the data's rules (memory is a matter of the order)."""
        time = self.graph.duration
        for _, families in self.graph.machines:
            blocks = [
                (o, row[: self.first[o]], row[self.first[o] : self.first[o] + self.step], row[self.first[o] + self.step :])
                for o in families
                for row in (self.start[o],)
            ]
            spans = []
            for block in (1, 2, 3):
                begin = np.concatenate([entry[block] for entry in blocks])
                end = np.concatenate([entry[block] + time[entry[0]] for entry in blocks])
                turn = np.lexsort((end, begin))
                if (begin[turn][1:] < end[turn][:-1]).any():
                    return False
                spans.append((int(begin.min()), int(end.max())) if len(begin) else None)
            before, within, after = spans
            assert within is not None, "a period has operations of every family"
            if (before and before[1] > within[0]) or within[1] > within[0] + self.period or (after and after[0] < within[1]):
                return False
        relation = relations(self.graph, tuple(map(len, self.start)), self.first, self.step)
        flat = np.concatenate(self.start)
        slack = flat[relation.after] - flat[relation.before] + relation.turns * self.period
        return bool((slack >= relation.lag).all())

    def expanded(self, copies: int) -> tuple[IntArray, ...]:
        """Per family the starts with ``copies`` more periods."""
        rows = []
        shift = np.arange(copies + 1, dtype=np.int64)[:, None] * self.period
        for row, first in zip(self.start, self.first, strict=True):
            last = first + self.step
            rows.append(np.concatenate((row[:first], (row[first:last] + shift).ravel(), row[last:] + copies * self.period)))
        return tuple(rows)

    def longer(self, copies: int) -> Periodic:
        """The same schedule with ``copies`` more periods."""
        return replace(self, start=self.expanded(copies))

    def doubled(self, counts: Sequence[int]) -> Periodic:
        """The same schedule with two periods as one, of a size from which whole periods lead to ``counts``."""
        copies = 1 + (min(counts) - min(self.microbatches) - self.step) // self.step % 2
        return Periodic(self.graph, self.expanded(copies), self.first, 2 * self.period, 2 * self.step)

    def copies_for(self, counts: Sequence[int]) -> int | None:
        """How many more periods give ``counts`` microbatches per route; ``None`` where no number does."""
        more = {divmod(count - own, self.step) for count, own in zip(counts, self.microbatches, strict=True)}
        if len(more) > 1:
            return None
        ((copies, rest),) = more
        return None if rest or copies < 0 else copies

    def makespan_for(self, counts: Sequence[int]) -> int | None:
        """Ticks, of the expansion to ``counts`` microbatches per route; ``None`` where there is none."""
        copies = self.copies_for(counts)
        return None if copies is None else self.makespan + copies * self.period


class Relations(NamedTuple):
    """``start[after] + turns * period >= start[before] + lag``; operations as places in the concatenation of all families."""

    before: IntArray
    after: IntArray
    turns: IntArray
    lag: IntArray


def relations(graph: FamilyGraph, counts: Sequence[int], first: Sequence[int], step: int) -> Relations:
    """What the edges of a graph demand of the three blocks, so that every expansion keeps them.

    An edge relates the n-th operations of two families, which may lie in different blocks and copies. All cases occur with
    at most as many copies as the beginnings of the two differ by, and one more; ``first`` is how long each beginning is.
    """
    offset = np.concatenate(([0], np.cumsum(counts)))
    most = max((abs(first[e.before] + e.shift - first[e.after]) for e in graph.precedences), default=0) // step + 2
    columns: list[IntArray] = []
    for before, after, shift, lag in graph.precedences:
        lag += graph.duration[before]
        nearest = abs(first[before] + shift - first[after]) // step + 2
        found = []
        for copies in range(min(most, nearest) + 1):
            index = np.arange(min(counts[before] + copies * step, counts[after] + copies * step - shift))
            (a, a_turns), (b, b_turns) = (
                _folded(index + more, first[o], step, copies) for o, more in ((before, 0), (after, shift))
            )
            found.append(np.stack((a + offset[before], b + offset[after], b_turns - a_turns)))
        column = np.unique(np.concatenate(found, axis=1), axis=1)
        columns.append(np.concatenate((column, np.full((1, column.shape[1]), lag))))
    table = np.concatenate(columns, axis=1) if columns else np.empty((4, 0), dtype=np.int64)
    return Relations(*table.astype(np.int64))


def _folded(index: IntArray, first: int, step: int, copies: int) -> tuple[IntArray, IntArray]:
    """For operations of an expansion: the operation of the small schedule, and how many periods later it is."""
    turns = np.clip((index - first) // step, 0, copies)
    return index - turns * step, turns


def order_from(pipeline: Pipeline, graph: FamilyGraph, start: Sequence[IntArray]) -> Order:
    """The devices' orders of these starts (per family, by microbatch), for as many microbatches as ``pipeline`` has.

    Where starts tie, operations that take no time come first, then those of earlier microbatches, then those that others
    wait for.
    """
    return _rows_from(pipeline, graph, start)[0]


def schedule_of(pipeline: Pipeline, periodic: Periodic) -> Schedule:
    """The expansion to the microbatches of ``pipeline``, every operation as early as its order allows.

    Transfers that hold links keep their order too. Without any, the earliest times of a small expansion are those of a large
    one, but for what is repeated in the middle; so a small one is timed, and what follows for the large one is verified
    (:func:`ppopt.timing.time_order`).

    Raises:
        ValueError: no whole number of periods leads to that many microbatches.
    """
    copies = periodic.copies_for(counts_of(pipeline))
    if copies is None:
        raise ValueError(f"{periodic.microbatches} microbatches and periods of {periodic.step} do not make {counts_of(pipeline)}")
    if pipeline.lines:
        order, starts, transfers = _rows_from(pipeline, periodic.graph, periodic.expanded(copies))
        return left_shifted(Schedule(pipeline, order, starts, transfers))
    few = min(copies, _SETTLED)
    start = periodic.expanded(few)
    small = pipeline.changed(microbatches=sum(count - (copies - few) * periodic.step for count in counts_of(pipeline)))
    timed = time_order(small, order_from(small, periodic.graph, start))
    if few == copies and small.route_of_microbatch == pipeline.route_of_microbatch:
        return timed
    times = np.zeros(small.index.size, dtype=np.int64)
    for row, begin in zip(timed.order.rows, timed.start, strict=True):
        times[row] = begin
    settled = tuple(times[operations(small, family)] for family in periodic.graph.families)
    first = tuple(n + few // 2 * periodic.step for n in periodic.first)
    guess = Periodic(periodic.graph, settled, first, periodic.period, periodic.step).expanded(copies - few)
    order, starts, _ = _rows_from(pipeline, periodic.graph, guess)
    expected = order_from(pipeline, periodic.graph, periodic.expanded(copies))
    return time_order(pipeline, expected, starts if order == expected else None)


def _rows_from(
    pipeline: Pipeline, graph: FamilyGraph, start: Sequence[IntArray]
) -> tuple[Order, tuple[IntArray, ...], Transfers]:
    """The order, the starts in it, and the transfers."""
    rows, starts = [], []
    for _, families in graph.machines[: graph.owners]:
        columns = [
            (
                operations(pipeline, graph.families[o]),
                start[o],
                np.full(len(start[o]), int(graph.duration[o] > 0)),
                np.full(len(start[o]), o),
            )
            for o in families
        ]
        if not columns:
            rows.append(np.empty(0, dtype=np.int64))
            starts.append(rows[-1])
            continue
        number, begin, time, place = (np.concatenate(column) for column in zip(*columns, strict=True))
        turn = np.concatenate([np.arange(len(start[o])) for o in families])
        sorted_ = np.lexsort((place, turn, time, begin))
        rows.append(number[sorted_])
        starts.append(begin[sorted_])
    devices = pipeline.devices
    transfers = Transfers(tuple(rows[devices:]), tuple(starts[devices:]))
    return Order(pipeline.index, tuple(rows[:devices])), tuple(starts[:devices]), transfers


def retimed(periodic: Periodic, graph: FamilyGraph, period: int) -> Periodic | None:
    """The same order of operations with the times of another graph (of the same families) and period.

    Every operation as early as can be; ``None`` where the order cannot be repeated with this period.
    """
    relation = _order_relations(periodic, graph)
    lag = relation.lag - relation.turns * period
    start = np.zeros(sum(map(len, periodic.start)), dtype=np.int64)
    turn = np.argsort(relation.after, kind="stable")
    after, before, lag = relation.after[turn], relation.before[turn], lag[turn]
    heads, at = np.unique(after, return_index=True)
    for _ in range(len(start) + 1):
        least = np.maximum.reduceat(start[before] + lag, at) if len(at) else np.empty(0, dtype=np.int64)
        late = least > start[heads]
        if not late.any():
            break
        start[heads[late]] = least[late]
    else:
        return None
    rows = tuple(np.split(start, np.cumsum([len(row) for row in periodic.start])[:-1]))
    return Periodic(graph, rows, periodic.first, period, periodic.step)


def _order_relations(periodic: Periodic, graph: FamilyGraph) -> Relations:
    """The data's demands, and those of the order of every device and link."""
    counts = tuple(map(len, periodic.start))
    offset = np.concatenate(([0], np.cumsum(counts)))
    rows: list[tuple[int, int, int, int]] = []
    for _, families in graph.machines:
        chain: list[list[tuple[int, int, int, int, int]]] = [[], [], []]
        for o in families:
            first, last = periodic.first[o], periodic.first[o] + periodic.step
            for n, begin in enumerate(periodic.start[o].tolist()):
                block = 0 if n < first else 1 if n < last else 2
                chain[block].append((begin, periodic.graph.duration[o] > 0, n, o, int(offset[o]) + n))
        whole = [op for ops in chain for op in sorted(ops)]
        rows += [(a[4], b[4], 0, graph.duration[a[3]]) for a, b in pairwise(whole)]
        if chain[1]:
            first_op, last_op = min(chain[1]), max(chain[1])
            rows.append((last_op[4], first_op[4], 1, graph.duration[last_op[3]]))
    table = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    data = relations(graph, counts, periodic.first, periodic.step)
    return Relations(*(np.concatenate((a, b)) for a, b in zip(data, table, strict=True)))


def counts_of(pipeline: Pipeline) -> tuple[int, ...]:
    """Per route its number of microbatches."""
    return tuple(map(len, pipeline.microbatches_of))
