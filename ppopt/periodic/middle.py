"""What an ordinary schedule repeats in its middle: list scheduling falls into a period by itself, now and then a good one."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ppopt.constraints import FamilyGraph, operations
from ppopt.periodic.periodic import Periodic, counts_of, order_from, retimed, schedule_of
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Schedule

_MOST = 32
"""Most microbatches per period that are looked for."""


def periodic_in(schedule: Schedule, graph: FamilyGraph) -> Periodic | None:
    """The schedule with its beginning, one period, and its end, of the same makespan (without traffic) for as many microbatches.

    ``None``: around half of its time it does not repeat itself twice, or it runs other operations than the graph has.
    """
    rows = _starts(schedule, graph)
    if rows is None:
        return None
    makespan = max(int(row[-1]) + time for row, time in zip(rows, graph.duration, strict=True) if len(row))
    half = makespan // 2
    for step in range(1, min(_MOST, *(len(row) // 2 for row in rows)) + 1):
        period = _after(rows[0], half, step)
        if not period:
            continue
        begin, end = 0, makespan
        for row in rows:
            other = row[:-step][row[step:] - row[:-step] != period]
            begin = max(begin, int(other[other < half].max(initial=-1)) + 1)
            end = min(end, int(other[other >= half].min(initial=int(row[-step]))))
        at = [int(np.searchsorted(row, begin)) + step - 1 for row in rows]
        if any(place >= len(row) for row, place in zip(rows, at, strict=True)):
            continue
        begin = max(begin, *(int(row[place]) - period + 1 for row, place in zip(rows, at, strict=True)))  # all have begun
        turns = (end - begin) // period + 1  # what starts from the begin on and before the end starts again a period later
        if turns >= 3:
            first = [int(np.searchsorted(row, begin)) for row in rows]
            start = tuple(
                np.concatenate((row[: at + step], row[at + turns * step :] - (turns - 1) * period))
                for row, at in zip(rows, first, strict=True)
            )
            found = Periodic(graph, start, tuple(first), period, step)
            return found if found.holds() else None
    return None


def repeated_value(schedule: Schedule, graphs: Sequence[FamilyGraph], microbatches: int) -> Fraction | None:
    """Ticks that it takes about, its middle repeated up to ``microbatches``; ``None`` where that does not repeat.

    About, since the numbers of microbatches may differ by a part of a period.
    """
    more = microbatches - schedule.pipeline.microbatches
    found = (periodic_in(schedule, graph) for graph in graphs)
    return min((schedule.makespan + Fraction(one.period, one.step) * more for one in found if one is not None), default=None)


def repeated(schedule: Schedule, graphs: Sequence[FamilyGraph], pipeline: Pipeline) -> Schedule | None:
    """Its middle repeated up to the microbatches of ``pipeline``, which has more of them.

    ``None``: it does not repeat, or no whole number of its periods leads there.
    """
    found = (periodic_in(schedule, graph) for graph in graphs)
    fit = (one for one in found if one is not None and one.copies_for(counts_of(pipeline)) is not None)
    return next((schedule_of(pipeline, one) for one in fit), None)


def repeated_as(schedule: Schedule, seed: Periodic, more: int) -> Periodic | None:
    """The schedule with the period of ``seed``, which comes behind ``more`` more of them than there.

    ``None``: it cannot be repeated there without another order.
    """
    rows = _starts(schedule, seed.graph)
    if rows is None:
        return None
    first = tuple(begin + more * seed.step for begin in seed.first)
    found = retimed(Periodic(seed.graph, tuple(rows), first, seed.period, seed.step), seed.graph, seed.period)
    same = found is not None and order_from(schedule.pipeline, seed.graph, found.start) == schedule.order
    return found if found is not None and same and found.holds() else None


def _after(row: IntArray, time: int, step: int) -> int:
    """How long after the first start since then the one ``step`` later is; 0 where there is none."""
    at = int(np.searchsorted(row, time))
    return int(row[at + step] - row[at]) if at + step < len(row) else 0


def _starts(schedule: Schedule, graph: FamilyGraph) -> list[IntArray] | None:
    """Per family its starts in order, from the first one on; ``None``: it runs other operations."""
    pipeline = schedule.pipeline
    times = np.full(pipeline.index.size, -1, dtype=np.int64)
    begin = min(int(starts.min()) for starts in schedule.start if len(starts))  # an all-gather begins sooner
    ran = 0
    for numbers, starts in zip(
        (*schedule.order.rows, *schedule.transfers.rows), (*schedule.start, *schedule.transfers.start), strict=True
    ):
        if len(numbers) and int(numbers.max()) >= len(times):
            return None
        times[numbers] = starts - begin
        ran += len(numbers)
    rows = [np.sort(times[operations(pipeline, family)]) for family in graph.families]
    return None if ran != sum(map(len, rows)) or any(len(row) and row[0] < 0 for row in rows) else rows
