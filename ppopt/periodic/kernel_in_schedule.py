"""A kernel found in a schedule: list scheduling repeats something in the middle by itself, now and then a good kernel."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ppopt.constraints import FamilyGraph, operations
from ppopt.periodic.periodic_schedule import PeriodicSchedule, microbatches_per_route, order_from, retimed, schedule_of
from ppopt.periodic.tuning import ModuloTuning
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Schedule


def kernel_in(schedule: Schedule, graph: FamilyGraph, tuning: ModuloTuning) -> PeriodicSchedule | None:
    """The schedule cut into prologue, one kernel and epilogue. With the other kernels back it has the same makespan.

    Traffic of data parallelism does not count. ``None``: around half of its time the schedule does not repeat itself
    often enough, or it runs other operations than the graph has.
    """
    rows = _starts(schedule, graph)
    if rows is None:
        return None
    makespan = max(int(row[-1]) + time for row, time in zip(rows, graph.duration, strict=True) if len(row))
    half = makespan // 2
    for unroll in range(1, min(tuning.most_in_schedule, *(len(row) // 2 for row in rows)) + 1):
        period = _later_by(rows[0], half, unroll)
        if not period:
            continue
        begin, end = 0, makespan
        for row in rows:
            other = row[:-unroll][row[unroll:] - row[:-unroll] != period]
            begin = max(begin, int(other[other < half].max(initial=-1)) + 1)
            end = min(end, int(other[other >= half].min(initial=int(row[-unroll]))))
        at = [int(np.searchsorted(row, begin)) + unroll - 1 for row in rows]
        if any(place >= len(row) for row, place in zip(rows, at, strict=True)):
            continue
        begin = max(begin, *(int(row[place]) - period + 1 for row, place in zip(rows, at, strict=True)))  # all have begun
        kernels = (end - begin) // period + 1  # what starts from the begin on and before the end starts again a period later
        if kernels >= tuning.repeats:
            prologue = [int(np.searchsorted(row, begin)) for row in rows]
            start = tuple(
                np.concatenate((row[: at + unroll], row[at + kernels * unroll :] - (kernels - 1) * period))
                for row, at in zip(rows, prologue, strict=True)
            )
            found = PeriodicSchedule(graph, start, tuple(prologue), period, unroll)
            return found if found.is_valid() else None
    return None


def repeated_value(schedule: Schedule, graphs: Sequence[FamilyGraph], microbatches: int, tuning: ModuloTuning) -> Fraction | None:
    """Ticks that it takes about, its kernel repeated up to ``microbatches``; ``None`` where it has no kernel.

    About, since the numbers of microbatches may differ by a part of a kernel.
    """
    more = microbatches - schedule.pipeline.microbatches
    found = (kernel_in(schedule, graph, tuning) for graph in graphs)
    return min((schedule.makespan + Fraction(one.period, one.unroll) * more for one in found if one is not None), default=None)


def repeated(schedule: Schedule, graphs: Sequence[FamilyGraph], pipeline: Pipeline, tuning: ModuloTuning) -> Schedule | None:
    """Its kernel repeated up to the microbatches of ``pipeline``, which has more of them.

    ``None``: it has no kernel, or no whole number of kernels leads there.
    """
    found = (kernel_in(schedule, graph, tuning) for graph in graphs)
    fit = (one for one in found if one is not None and one.copies_for(microbatches_per_route(pipeline)) is not None)
    return next((schedule_of(pipeline, one) for one in fit), None)


def repeated_as(schedule: Schedule, seed: PeriodicSchedule, more: int) -> PeriodicSchedule | None:
    """The schedule as a periodic one with the period of ``seed``; its kernel comes ``more`` kernels later than that of ``seed``.

    ``None``: its order does not repeat there.
    """
    rows = _starts(schedule, seed.graph)
    if rows is None:
        return None
    prologue = tuple(begin + more * seed.unroll for begin in seed.prologue)
    found = retimed(PeriodicSchedule(seed.graph, tuple(rows), prologue, seed.period, seed.unroll), seed.graph, seed.period)
    same = found is not None and order_from(schedule.pipeline, seed.graph, found.start) == schedule.order
    return found if found is not None and same and found.is_valid() else None


def _later_by(row: IntArray, time: int, unroll: int) -> int:
    """How long after the first start from ``time`` on the one ``unroll`` microbatches later is; 0 where there is none."""
    at = int(np.searchsorted(row, time))
    return int(row[at + unroll] - row[at]) if at + unroll < len(row) else 0


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
