"""Memory limits of a pipeline: other ones, the least ones, and schedules that keep to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ppopt.constraints import rules_of
from ppopt.heuristics import Jobs, Stuck, run_jobs
from ppopt.pipeline import Pipeline, least_limits
from ppopt.schedule import Schedule, halves
from ppopt.timing.timed import time_order


def scale_of(schedule: Schedule, shares: Sequence[Fraction]) -> Fraction:
    """The smallest scale of limits with these proportions at which ``schedule`` fits."""
    per_unit = schedule.pipeline.amounts.per_unit
    return max(
        (Fraction(peak, per_unit) / share for peak, share in zip(schedule.peak_memory, shares, strict=True) if share),
        default=Fraction(0),
    )


def limited(pipeline: Pipeline, limits: tuple[Fraction, ...] | None) -> Pipeline:
    """The pipeline with other limits."""
    return pipeline.changed(
        memory=dataclasses.replace(pipeline.memory, limit=limits), route_of_microbatch=pipeline.route_of_microbatch
    )


def least_scale(pipeline: Pipeline, shares: Sequence[Fraction]) -> Fraction:
    """The smallest scale at which any schedule exists: one microbatch at a time, with all its activations."""
    amounts = pipeline.amounts
    needs, least = [], least_limits(pipeline)
    for device, share in enumerate(shares):
        need = Fraction(least[device], amounts.per_unit)
        if need and share:
            needs.append(need / share)
    return max(needs, default=Fraction(0))


def rearranged(pipeline: Pipeline, schedule: Schedule) -> Schedule | None:
    """The schedule's operations, started in its order as far as ``pipeline``'s limits allow; ``None`` where they get stuck."""
    numbers = np.concatenate(schedule.order.rows)
    first, second = halves(pipeline.index, numbers)
    if (second >= 0).any():
        return None  # pairs are not taken apart
    jobs = Jobs(pipeline, rules_of(pipeline), run=np.sort(first))
    start = dict(zip(numbers.tolist(), np.concatenate(schedule.start).tolist(), strict=True))
    rank = np.array([start[number] for number in jobs.numbers.tolist()], dtype=np.int64)
    try:
        return time_order(pipeline, run_jobs(jobs, (rank,)))
    except Stuck:
        return None
