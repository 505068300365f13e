"""Sets of stages that recompute, as the bits of an integer; and by what a set is judged."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Literal, TypeAlias

from ppopt.op import Kind
from ppopt.pipeline import Pipeline

Objective: TypeAlias = Literal["makespan", "span"]
Key: TypeAlias = tuple[Fraction | int, int, int]
"""The objective, what recomputing adds to the work, and the number of stages that recompute: the smaller, the better."""


def bits_of(stages: Iterable[int]) -> int:
    """Stages as a set."""
    return sum(1 << stage for stage in stages)


def stages_of(bits: int) -> list[int]:
    """The stages of a set, ascending."""
    return [stage for stage in range(bits.bit_length()) if bits >> stage & 1]


def ends(pipeline: Pipeline) -> tuple[Pipeline, Pipeline]:
    """The pipeline where no stage recomputes, without a limit, which may be too low for it; and where every stage does."""
    memory = dataclasses.replace(pipeline.memory, limit=None)
    free = pipeline.changed(memory=memory, route_of_microbatch=pipeline.route_of_microbatch)
    return free.resolved("none"), pipeline.resolved("all")


def work_added(none: Pipeline, every: Pipeline) -> list[int]:
    """``[stage]``: what the devices have to do more where the stage recomputes, in some unit of time.

    ``none`` and ``every`` are the two :func:`ends`.
    """
    per_unit = math.lcm(none.ticks.per_unit, every.ticks.per_unit)

    def totals(pipeline: Pipeline) -> list[int]:
        backward = pipeline.ticks.duration[:, Kind.B].tolist()
        microbatches = [len(of) for of in pipeline.microbatches_of]
        scale = per_unit // pipeline.ticks.per_unit
        return [sum(b * of for b, of in zip(column, microbatches, strict=True)) * scale for column in zip(*backward, strict=True)]

    return [a - b for a, b in zip(totals(every), totals(none), strict=True)]
