"""What the rules need of a pipeline, read from its own fields as integers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from ppopt.op import Kind
from ppopt.pipeline import Pipeline, PipelineError, Table, Value

RESOLUTION = 10**9
"""Recorded times are rounded to this part of the finest time in the costs."""


class Facts(NamedTuple):
    """Times and amounts of a pipeline as integers of a common unit each."""

    per_time: int
    """Integer times per unit of the user's."""
    per_amount: int
    """Integer amounts of memory per unit of the user's."""
    duration: list[list[int]]
    """``[route][kind * stages + stage]``; -1: there is no such operation."""
    overlap: list[list[int]]
    """``[route][stage of the forward]``: what a pair takes; -1: as long as its halves together."""
    up: list[list[int]]
    """``[route][stage]``: how long a result travels from the stage to the next one (once its transfer has ended)."""
    down: list[list[int]]
    """``[route][stage]``: how long a gradient travels to the stage from the next one (likewise)."""
    up_held: list[list[int]]
    """``[route][stage]``: how long the transfer of a result from the stage to the next one holds its link; 0: there is none."""
    down_held: list[list[int]]
    """``[route][stage]``: how long the transfer of a gradient to the stage from the next one holds its link; 0: there is none."""
    activation: list[list[int]]
    """``[route][stage]``: held from the start of F to the end of the backward."""
    retained: list[list[int]]
    """``[route][stage]``: the part of it that is held on after I."""
    static: list[int]
    """``[device]``: always held."""
    limit: list[int] | None
    """``[device]``; ``None``: unlimited."""
    gather: list[list[int]]
    """``[route][stage]``: what its device has gathered when the stage's first operation may start."""
    scatter: list[list[int]]
    """``[route][stage]``: what its device still has to scatter when the stage's last operation has ended."""
    traffic: bool
    """Whether some device gathers or scatters."""


def facts_of(pipeline: Pipeline, ticks_per_unit: int | None) -> Facts:
    """The facts of a pipeline.

    Its integer times can tell ticks of that many per unit exactly; without one, they are ``RESOLUTION`` times finer than
    the costs, for times that were recorded as doubles.
    """
    costs, memory, routes = pipeline.costs, pipeline.memory, pipeline.routes
    input_, weight, full = costs.backward_input, costs.backward_weight, costs.backward
    again = _recomputing(pipeline)
    kinds: list[list[list[Fraction]]] = []
    for route in routes:
        i, w = (_by_stage(pipeline, route, value) for value in (input_, weight))
        b = _by_stage(pipeline, route, full) if full is not None else [x + y for x, y in zip(i, w, strict=True)]
        for stage in again:
            once_more = _by_stage(pipeline, route, costs.recompute)[stage]
            b[stage] += once_more
            if i:
                i[stage] += once_more
        kinds.append([_by_stage(pipeline, route, costs.forward), b, i, w])
    overlap = [_by_stage(pipeline, route, costs.overlap) for route in routes]
    latency, occupancy = pipeline.links.latency, pipeline.links.occupancy
    up, up_held = ([[_between(t, a, b) for a, b in pairwise(route)] for route in routes] for t in (latency, occupancy))
    down, down_held = ([[_between(t, b, a) for a, b in pairwise(route)] for route in routes] for t in (latency, occupancy))

    traffic = pipeline.data_parallel.all_gather, pipeline.data_parallel.reduce_scatter
    gather, scatter = ([_traffic(pipeline, route, value) for route in routes] for value in traffic)
    finest = _denominator(
        x for rows in (*kinds, overlap, up, down, up_held, down_held, gather, scatter) for row in rows for x in row
    )
    per_time = finest * RESOLUTION if ticks_per_unit is None else math.lcm(finest, ticks_per_unit)

    activation = [_by_stage(pipeline, route, memory.activation) for route in routes]
    kept = memory.activation if memory.retained is None else memory.retained
    retained = [_by_stage(pipeline, route, kept) for route in routes]
    for position, route in enumerate(routes):
        for stage in again:
            activation[position][stage] -= _by_stage(pipeline, route, memory.recompute_saved)[stage]
            retained[position][stage] = min(retained[position][stage], activation[position][stage])
    static = [_entry(memory.static, d) * _copies(pipeline, d) for d in range(pipeline.devices)]
    limit = None if memory.limit is None else [_entry(memory.limit, d) for d in range(pipeline.devices)]
    per_amount = _denominator(x for row in (*activation, *retained, static, limit or []) for x in row)

    def times(row: Iterable[Fraction]) -> list[int]:
        return [int(x * per_time) for x in row]

    def amounts(row: Iterable[Fraction]) -> list[int]:
        return [int(x * per_amount) for x in row]

    stages = pipeline.stages
    return Facts(
        per_time,
        per_amount,
        [[x for row in of_route for x in (times(row) or [-1] * stages)] for of_route in kinds],
        [times(row) or [-1] * stages for row in overlap],
        [times(row) for row in up],
        [times(row) for row in down],
        [times(row) for row in up_held],
        [times(row) for row in down_held],
        [amounts(row) for row in activation],
        [amounts(row) for row in retained],
        amounts(static),
        None if limit is None else amounts(limit),
        [times(row) for row in gather],
        [times(row) for row in scatter],
        any(map(any, (*gather, *scatter))),
    )


def shortest(facts: Facts) -> int:
    """The shortest positive duration; 0 if nothing takes any time."""
    return min((x for rows in (facts.duration, facts.overlap) for row in rows for x in row if x > 0), default=0)


def horizon(pipeline: Pipeline, facts: Facts) -> int:
    """A time by which every schedule that wastes none has ended: all operations and transfers, one after the other."""
    stages = pipeline.stages
    taken = Counter(pipeline.route_of_microbatch)
    total = 0
    for route, microbatches in taken.items():
        rows = [facts.duration[route][kind * stages : (kind + 1) * stages] for kind in Kind]
        hops = (facts.up, facts.down, facts.up_held, facts.down_held)
        total += microbatches * (sum(max(sum(row), 0) for row in rows) + sum(sum(of[route]) for of in hops))
        total += microbatches * max(sum(facts.overlap[route]), 0)
    total += sum(max(map(max, rows)) for rows in (facts.gather, facts.scatter))
    return total


def _by_stage(pipeline: Pipeline, route: tuple[int, ...], value: Value | None) -> list[Fraction]:
    """What each stage of a route has of a value; nothing where there is none."""
    if value is None:
        return []
    if pipeline.costs.per == "stage":
        return [_entry(value, stage) for stage in range(len(route))]
    chunks = Counter(route)
    return [_entry(value, device) / chunks[device] for device in route]


def _recomputing(pipeline: Pipeline) -> Iterable[int]:
    """The stages that recompute their activations."""
    if pipeline.recompute == "choose":
        raise PipelineError("pipeline.recompute", "a schedule can be checked only once it is said which stages recompute")
    if pipeline.recompute == "all":
        return range(pipeline.stages)
    return () if pipeline.recompute == "none" else pipeline.recompute


def _entry(value: Value, position: int) -> Fraction:
    return value if isinstance(value, Fraction) else value[position]


def _between(table: Table, source: int, target: int) -> Fraction:
    if source == target:
        return Fraction(0)
    return table if isinstance(table, Fraction) else table[source][target]


def _copies(pipeline: Pipeline, device: int) -> Fraction:
    """How many copies of its share of the weights a device holds.

    A share is what it holds for one route; a stage that two routes have on the same device is held once.
    """
    stages = [{s for s, d in enumerate(route) if d == device} for route in pipeline.routes]
    return Fraction(len(set.union(*stages)), max(len(held) for held in stages))


def _traffic(pipeline: Pipeline, route: tuple[int, ...], value: Value) -> list[Fraction]:
    """What a stage's device exchanges on the stage's side of its computations.

    Without overlap that is everything. With it, gathers go up the device's stages and scatters down: the stage's own and
    those of the stages before it.
    """
    result = []
    for stage, device in enumerate(route):
        stages = sorted({s for other in pipeline.routes for s, d in enumerate(other) if d == device})
        counted = [s for s in stages if s <= stage] if pipeline.data_parallel.overlap else stages
        if pipeline.data_parallel.per == "stage":
            result.append(sum((_entry(value, s) for s in counted), Fraction(0)))
        else:
            result.append(_entry(value, device) * len(counted) / len(stages))
    return result


def _denominator(values: Iterable[Fraction]) -> int:
    return math.lcm(*{value.denominator for value in values})
