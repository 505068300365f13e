"""A prologue, a kernel that can be repeated, and an epilogue: one object, a schedule for every number of microbatches."""

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
"""Copies of the kernel after which the earliest times repeat, more often than not; where they do not, timing takes longer."""


@dataclass(frozen=True, eq=False)
class PeriodicSchedule:
    """A modulo schedule: a prologue, a kernel that can be repeated, an epilogue.

    This is the field's *modulo schedule* (Rau, "Iterative modulo scheduling", 1994, doi 10.1145/192724.192731), with a kernel of
    ``unroll`` microbatches and a new copy of it every ``period`` ticks (the initiation interval of the unrolled loop).
    ``prologue`` says where the kernel begins: of every family the prologue has the first ``prologue`` operations, the kernel the
    next ``unroll``, the epilogue the rest. A device runs the three blocks one after the other. The kernel takes it at most
    ``period`` ticks from its first start.

    *Expansion.* The kernel is repeated, each copy ``period`` later and ``unroll`` microbatches further. The epilogue moves on by
    the same time. After every copy a device has started ``unroll`` more operations of each family than after the copy before, so
    it holds the same memory. Data arrives in time as :func:`block_precedences` demands. So every expansion is a schedule,
    ``period`` longer for every ``unroll`` more microbatches of each route.
    """

    graph: FamilyGraph
    start: tuple[IntArray, ...]
    """Per family, by microbatch of its route, in ticks; from 0."""
    prologue: tuple[int, ...]
    """Per family, how many operations the prologue has."""
    period: int
    """Ticks from one copy of the kernel to the next."""
    unroll: int
    """The unroll factor: microbatches of every route per kernel."""
    period_bounds: tuple[tuple[int, int], ...] = ()
    """Unroll factors, and what their periods are proved to be at least, on this graph."""

    @cached_property
    def makespan(self) -> int:
        """Ticks, of the schedule as it is."""
        return max(int(row[-1]) + time for row, time in zip(self.start, self.graph.duration, strict=True))

    @property
    def microbatches(self) -> tuple[int, ...]:
        """Per route, of the schedule as it is."""
        of = dict(zip((family.route for family in self.graph.families), map(len, self.start), strict=True))
        return tuple(of[route] for route in sorted(of))

    def is_valid(self) -> bool:
        """Whether every expansion keeps the devices', the links' and the data's rules (memory is a matter of the order)."""
        time = self.graph.duration
        for _, families in self.graph.machines:
            rows = [(time[o], np.split(self.start[o], (self.prologue[o], self.prologue[o] + self.unroll))) for o in families]
            spans = []
            for block in range(3):
                begin = np.concatenate([blocks[block] for _, blocks in rows])
                end = np.concatenate([blocks[block] + duration for duration, blocks in rows])
                turn = np.lexsort((end, begin))
                if (begin[turn][1:] < end[turn][:-1]).any():
                    return False
                spans.append((int(begin.min()), int(end.max())) if len(begin) else None)
            before, within, after = spans
            assert within is not None, "a kernel has operations of every family"
            if (before and before[1] > within[0]) or within[1] > within[0] + self.period or (after and after[0] < within[1]):
                return False
        wait = block_precedences(self.graph, tuple(map(len, self.start)), self.prologue, self.unroll)
        flat = np.concatenate(self.start)
        slack = flat[wait.after] - flat[wait.before] + wait.distance * self.period
        return bool((slack >= wait.lag).all())

    def expanded(self, copies: int) -> tuple[IntArray, ...]:
        """Per family the starts with ``copies`` more kernels."""
        rows = []
        shift = np.arange(copies + 1, dtype=np.int64)[:, None] * self.period
        for row, first in zip(self.start, self.prologue, strict=True):
            last = first + self.unroll
            rows.append(np.concatenate((row[:first], (row[first:last] + shift).ravel(), row[last:] + copies * self.period)))
        return tuple(rows)

    def with_more_kernels(self, copies: int) -> PeriodicSchedule:
        """The schedule with ``copies`` more kernels."""
        return replace(self, start=self.expanded(copies))

    def unrolled_twice(self, counts: Sequence[int]) -> PeriodicSchedule:
        """The schedule with two kernels as one, and one more of the old ones where whole kernels lead to ``counts`` only then."""
        copies = 1 + (min(counts) - min(self.microbatches) - self.unroll) // self.unroll % 2
        return PeriodicSchedule(self.graph, self.expanded(copies), self.prologue, 2 * self.period, 2 * self.unroll)

    def copies_for(self, counts: Sequence[int]) -> int | None:
        """How many more kernels give ``counts`` microbatches per route; ``None`` where no number does."""
        more = {divmod(count - own, self.unroll) for count, own in zip(counts, self.microbatches, strict=True)}
        if len(more) > 1:
            return None
        ((copies, rest),) = more
        return None if rest or copies < 0 else copies

    def makespan_for(self, counts: Sequence[int]) -> int | None:
        """Ticks, of the expansion to ``counts`` microbatches per route; ``None`` where there is none."""
        copies = self.copies_for(counts)
        return None if copies is None else self.makespan + copies * self.period


class BlockPrecedences(NamedTuple):
    """``start[after] + distance * period >= start[before] + lag``; operations as places in the concatenation of all families.

    ``distance`` is the iteration distance: how many kernels later ``after`` is than ``before``.
    """

    before: IntArray
    after: IntArray
    distance: IntArray
    lag: IntArray


def block_precedences(graph: FamilyGraph, counts: Sequence[int], prologue: Sequence[int], unroll: int) -> BlockPrecedences:
    """What the edges of a graph demand of the three blocks, so that every expansion keeps them.

    An edge relates the n-th operations of two families, which may lie in different blocks and copies. All cases occur with
    two kernels more than the prologues of the two families differ by.
    """
    offset = np.concatenate(([0], np.cumsum(counts)))
    most = max((abs(prologue[e.before] + e.shift - prologue[e.after]) for e in graph.precedences), default=0) // unroll + 2
    columns: list[IntArray] = []
    for before, after, shift, lag in graph.precedences:
        lag += graph.duration[before]
        nearest = abs(prologue[before] + shift - prologue[after]) // unroll + 2
        found = []
        for copies in range(min(most, nearest) + 1):
            index = np.arange(min(counts[before] + copies * unroll, counts[after] + copies * unroll - shift))
            (a, a_kernel), (b, b_kernel) = (
                _folded(index + more, prologue[o], unroll, copies) for o, more in ((before, 0), (after, shift))
            )
            found.append(np.stack((a + offset[before], b + offset[after], b_kernel - a_kernel)))
        column = np.unique(np.concatenate(found, axis=1), axis=1)
        columns.append(np.concatenate((column, np.full((1, column.shape[1]), lag))))
    table = np.concatenate(columns, axis=1) if columns else np.empty((4, 0), dtype=np.int64)
    return BlockPrecedences(*table.astype(np.int64))


def _folded(index: IntArray, prologue: int, unroll: int, copies: int) -> tuple[IntArray, IntArray]:
    """For operations of an expansion: the operation of the small schedule, and how many kernels later it is."""
    later = np.clip((index - prologue) // unroll, 0, copies)
    return index - later * unroll, later


def order_from(pipeline: Pipeline, graph: FamilyGraph, start: Sequence[IntArray]) -> Order:
    """The devices' orders of these starts, which are given per family and by microbatch, for all microbatches of ``pipeline``.

    Where starts tie, operations that take no time come first, then those of earlier microbatches, then those that others
    wait for.
    """
    return _rows_from(pipeline, graph, start)[0]


def schedule_of(pipeline: Pipeline, periodic: PeriodicSchedule) -> Schedule:
    """The expansion to the microbatches of ``pipeline``, every operation as early as its order allows.

    Transfers that hold links keep their order too. Without any, the earliest times of a small expansion are those of a large
    one, but for what is repeated in the middle. So a small one is timed, and what follows for the large one is verified
    (:func:`ppopt.timing.time_order`).

    Raises:
        ValueError: no whole number of kernels leads to that many microbatches.
    """
    counts = microbatches_per_route(pipeline)
    copies = periodic.copies_for(counts)
    if copies is None:
        raise ValueError(f"{periodic.microbatches} microbatches and kernels of {periodic.unroll} do not make {counts}")
    if pipeline.lines:
        order, starts, transfers = _rows_from(pipeline, periodic.graph, periodic.expanded(copies))
        return left_shifted(Schedule(pipeline, order, starts, transfers))
    few = min(copies, _SETTLED)
    start = periodic.expanded(few)
    small = pipeline.changed(microbatches=sum(count - (copies - few) * periodic.unroll for count in counts))
    timed = time_order(small, order_from(small, periodic.graph, start))
    if few == copies and small.route_of_microbatch == pipeline.route_of_microbatch:
        return timed
    times = np.zeros(small.index.size, dtype=np.int64)
    for row, begin in zip(timed.order.rows, timed.start, strict=True):
        times[row] = begin
    settled = tuple(times[operations(small, family)] for family in periodic.graph.families)
    prologue = tuple(n + few // 2 * periodic.unroll for n in periodic.prologue)
    guess = PeriodicSchedule(periodic.graph, settled, prologue, periodic.period, periodic.unroll).expanded(copies - few)
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


def retimed(periodic: PeriodicSchedule, graph: FamilyGraph, period: int) -> PeriodicSchedule | None:
    """The order of operations with the times of another graph (of the same families) and period.

    Every operation as early as can be; ``None`` where the order cannot be repeated with this period.
    """
    wait = _order_precedences(periodic, graph)
    lag = wait.lag - wait.distance * period
    start = np.zeros(sum(map(len, periodic.start)), dtype=np.int64)
    by_after = np.argsort(wait.after, kind="stable")
    after, before, lag = wait.after[by_after], wait.before[by_after], lag[by_after]
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
    return PeriodicSchedule(graph, rows, periodic.prologue, period, periodic.unroll)


def _order_precedences(periodic: PeriodicSchedule, graph: FamilyGraph) -> BlockPrecedences:
    """The data's demands, and those of the order of every device and link."""
    counts = tuple(map(len, periodic.start))
    offset = np.concatenate(([0], np.cumsum(counts)))
    rows: list[tuple[int, int, int, int]] = []
    for _, families in graph.machines:
        chain: list[list[tuple[int, int, int, int, int]]] = [[], [], []]
        for o in families:
            kernel, epilogue = periodic.prologue[o], periodic.prologue[o] + periodic.unroll
            for n, begin in enumerate(periodic.start[o].tolist()):
                block = 0 if n < kernel else 1 if n < epilogue else 2
                chain[block].append((begin, periodic.graph.duration[o] > 0, n, o, int(offset[o]) + n))
        whole = [op for ops in chain for op in sorted(ops)]
        rows += [(a[4], b[4], 0, graph.duration[a[3]]) for a, b in pairwise(whole)]
        if chain[1]:
            first_op, last_op = min(chain[1]), max(chain[1])
            rows.append((last_op[4], first_op[4], 1, graph.duration[last_op[3]]))
    table = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    data = block_precedences(graph, counts, periodic.prologue, periodic.unroll)
    return BlockPrecedences(*(np.concatenate((a, b)) for a, b in zip(data, table, strict=True)))


def microbatches_per_route(pipeline: Pipeline) -> tuple[int, ...]:
    """Per route its number of microbatches."""
    return tuple(map(len, pipeline.microbatches_of))
