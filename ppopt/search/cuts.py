"""Cuts of layers that a search over all of them begins with or comes to: those that others make, and those near a cut."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from ppopt.clock import Clock
from ppopt.named import placed_freely, placed_here
from ppopt.named.auto_partition import simulated
from ppopt.pipeline import CHOOSE, Pipeline
from ppopt.pipeline.partitions import Counts
from ppopt.schedule import Objective, Schedule
from ppopt.search import tuning


class Made(NamedTuple):
    """A cut that others make, and what is said of it."""

    counts: Counts
    note: str = ""


def fastest(pipeline: Pipeline) -> Pipeline:
    """The pipeline without recomputing, where that is open: no choice takes less time; its memory may not be enough."""
    if pipeline.recompute != CHOOSE:
        return pipeline
    memory = dataclasses.replace(pipeline.memory, limit=None)
    return pipeline.changed(recompute="none", memory=memory, route_of_microbatch=pipeline.route_of_microbatch)


def without_an_answer(pipeline: Pipeline) -> Pipeline:
    """The balanced cut, where nothing recomputes that would have to be on every cut."""
    free = fastest(pipeline.changed(memory=dataclasses.replace(pipeline.memory, limit=None)))
    return (free if isinstance(free.recompute, str) else free.changed(recompute="none")).cut()


def dealt(pipeline: Pipeline, name: str) -> Made:
    """The even or the balanced cut.

    Raises:
        PipelineError: there is none.
    """
    return Made(pipeline.changed(partition=name, memory=dataclasses.replace(pipeline.memory, limit=None)).counts)


def simulating(pipeline: Pipeline) -> tuple[str, ...]:
    """The named schedules on this placement that PyTorch's auto-partition simulates."""
    if pipeline.placement == "loop" and pipeline.chunks > 1:
        return ("interleaved-1f1b", "interleaved-zb")
    return ("1f1b",) if pipeline.placement == "linear" else ()


def auto_cut(pipeline: Pipeline, schedule: str, clock: Clock) -> Made:
    """The cut of PyTorch's auto-partition, as far as the clock lasts; one schedule is simulated in any case.

    Raises:
        PipelineError: there is none.
        Restriction: it is not defined for this pipeline.
    """
    best: tuple[Fraction, Counts] | None = None
    for found in simulated(fastest(pipeline), schedule):
        clock.charge(tuning.SCHEDULED * found.pipeline.index.computations)
        value = Fraction(found.makespan, found.pipeline.ticks.per_unit)
        if best is None or value < best[0]:
            best = (value, found.pipeline.counts)
        if clock.over:
            break
    assert best is not None, "the first one is always given"
    return Made(best[1], f"{schedule} takes {plain(best[0])}")


def named_on(pipeline: Pipeline, objective: Objective) -> Iterator[Schedule]:
    """The named schedules on a cut."""
    return placed_freely(pipeline, objective) if pipeline.recompute == CHOOSE else placed_here(pipeline)


def plain(bound: Fraction | float) -> str:
    """A time in the user's unit, in words."""
    return f"{float(bound):.6g}"


def shown(counts: Counts) -> str:
    """The number of layers of each stage, in words."""
    return ",".join(map(str, counts))


def moved(counts: Counts) -> Iterator[Counts]:
    """Cuts in which one end, or two that follow each other, lie one or two layers elsewhere."""
    for length, by in itertools.product((1, 2), (-1, 1, -2, 2)):
        for first in range(len(counts) - length):
            other = list(counts)
            other[first] += by
            other[first + length] -= by
            if min(other[first], other[first + length]) > 0:
                yield tuple(other)
