"""A schedule for many devices after one for few: prologues and epilogues of like pipelines are alike, on another scale.

With twice the devices a pipeline takes twice as long to fill, with twice the microbatches. At full speed these take twice as long
as well. So an operation is due at a multiple of the time at which the one at its place in the small schedule starts. Between
places the times are interpolated. A list schedule in that order, in which nothing starts long before its time, comes close.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.constraints import rules_of
from ppopt.heuristics import Jobs, Stuck, run_jobs
from ppopt.op import Kind
from ppopt.periodic.periodic_schedule import PeriodicSchedule
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Schedule
from ppopt.timing import time_order

Times: TypeAlias = npt.NDArray[np.float64]

_LIKE = {Kind.F: (Kind.F,), Kind.B: (Kind.B, Kind.I), Kind.I: (Kind.I, Kind.B), Kind.W: (Kind.W, Kind.B)}
"""Per kind those whose time counts, the first that the small schedule runs."""


def stretched(periodic: PeriodicSchedule, pipeline: Pipeline) -> Iterator[tuple[str, Schedule]]:
    """Schedules of ``pipeline`` after one for a like pipeline of fewer devices; both have a single route.

    With ``n`` times as many devices it needs at least ``n`` times as many microbatches as the periodic one has. Any more are
    added in the middle. Each schedule lets operations start some time before they are due. That is a multiple of the longest
    operation: first the number of stages rounded up to a power of two, then half of that, and so on down to 0. Any of these may
    have the best kernel (measured), and many have none.
    """
    jobs = Jobs(pipeline, rules_of(pipeline), links=True)
    due = _due(periodic, pipeline, jobs)
    longest = int(jobs.duration.max())
    rank = np.unique(due.astype(np.float32), return_inverse=True)[1].astype(np.int64)  # equal but for rounding errors: equal
    for early in _powers(pipeline.stages):
        release = np.maximum(0, due - early * longest).astype(np.int64)
        try:
            order = run_jobs(jobs, (rank, jobs.features.turn), release=release)
        except Stuck:
            continue
        yield f"stretched, up to {early} operations early", time_order(pipeline, order)


def _powers(number: int) -> Iterator[int]:
    """The first power of two that is no less than the number, half of it, and so on down to 0."""
    power = 1 << (number - 1).bit_length()
    while power:
        yield power
        power //= 2
    yield power


def _due(periodic: PeriodicSchedule, pipeline: Pipeline, jobs: Jobs) -> Times:
    """Per job when it is due, in ticks."""
    rows = {(family.kind, family.stage): row for family, row in zip(periodic.graph.families, periodic.start, strict=True)}
    stages, few = 1 + max(stage for _, stage in rows), len(periodic.start[0])
    times = np.zeros((len(Kind), stages, few))
    for kind, likes in _LIKE.items():
        for stage in range(stages):
            row = next((rows[like, stage] for like in likes if (like, stage) in rows), np.zeros(few, np.int64))
            times[kind, stage] = _without_kernel(row, periodic.unroll)
    factor = pipeline.stages / stages
    more = pipeline.microbatches - factor * few
    turn, ran = jobs.features.turn, jobs.features.kind
    late = turn >= pipeline.microbatches / 2
    s, s_part = _place(jobs.features.stage, factor, stages)
    n, n_part = _place(turn - np.where(late, more, 0), factor, few)
    upper, lower = ((1 - n_part) * times[ran, s + i, n] + n_part * times[ran, s + i, n + 1] for i in (0, 1))
    middle = more * periodic.period / periodic.unroll
    due: Times = factor * ((1 - s_part) * upper + s_part * lower) + np.where(late, middle, 0)
    return due


def _without_kernel(row: IntArray, unroll: int) -> Times:
    """The times without what differs within a kernel of ``unroll`` microbatches; less so at either end."""
    even = row.astype(np.float64)
    for n in range(len(row)):
        reach = min(unroll // 2, n, len(row) - 1 - n)
        weights = np.ones(2 * reach + 1)
        if 2 * reach == unroll:
            weights[[0, -1]] = 0.5
        even[n] = np.average(row[n - reach : n + reach + 1], weights=weights)
    return even


def _place(index: IntArray, factor: float, count: int) -> tuple[IntArray, Times]:
    """Between which of ``count`` places the indices lie, on a scale smaller by ``factor``: the first, and how far on."""
    place = np.clip((index + 0.5) / factor - 0.5, 0, count - 1)
    first = np.minimum(place.astype(np.int64), count - 2)
    return first, place - first
