"""Cuts of layers that a search over all of them begins with or comes to: those that others make, and those near a cut."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from ppopt.clock import Clock, OutOfTime
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


def auto_cut(pipeline: Pipeline, schedule: str, clock: Clock, seconds: float) -> Made:
    """The cut of PyTorch's auto-partition, as far as these ``seconds`` of the clock last; one schedule is simulated in any case.

    Raises:
        PipelineError: there is none.
        Restriction: it is not defined for this pipeline.
    """
    best, clock = None, clock.slice(seconds)
    for found in simulated(fastest(pipeline), schedule):
        clock.charge(tuning.SCHEDULED * found.pipeline.index.computations)
        value = Fraction(found.makespan, found.pipeline.ticks.per_unit)
        if best is None or value < best[0]:
            best = (value, found.pipeline.counts)
        if clock.over:
            break
    assert best is not None, "the first one is always given"
    return Made(best[1], f"{schedule} takes {plain(best[0])}")


def by_others(pipeline: Pipeline, clock: Clock, seconds: float) -> Iterator[tuple[str, Callable[[], Made]]]:
    """The cuts that others make, by name: the balanced one, then those that the clock has time for.

    ``seconds``: what each simulation may take. What there is no time for raises :class:`OutOfTime`.
    """
    yield "balanced cut", partial(dealt, pipeline, "balanced")
    makes = {"even cut": partial(dealt, pipeline, "even")}
    for schedule in simulating(pipeline):
        makes[f"PyTorch's auto-partition for {schedule}"] = partial(auto_cut, pipeline, schedule, clock, seconds)
    for name, make in makes.items():
        yield name, _left_out if clock.over else make


def _left_out() -> Made:
    raise OutOfTime("left out, no time was left")


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
