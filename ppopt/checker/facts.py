"""What the rules need of a pipeline, read from its own fields as integers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from ppopt.checker.copied import away_of, copy_times
from ppopt.checker.factors import Factors, factors
from ppopt.checker.layers import by_stage
from ppopt.checker.places import before_step, fetch_times, held_weights, places
from ppopt.op import Kind
from ppopt.pipeline import Pipeline, PipelineError, Table, Value
from ppopt.pipeline.tables import once_each

Row: TypeAlias = Sequence[Fraction | None]
"""Exact values in the user's unit; ``None``: there is no such operation."""
RESOLUTION = 10**9
"""Recorded times are rounded to this part of the finest time in the costs."""


class Facts(NamedTuple):
    """Times and amounts of a pipeline as integers of a common unit each."""

    per_time: int
    """Integer times per unit of the user's."""
    per_amount: int
    """Integer amounts of memory per unit of the user's."""
    duration: list[list[int]]
    """``[route][kind * stages + stage]``; -1: there is no such operation. Of weight gradients in pieces each is a kind."""
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
    """``[route][stage]``: held from the start of F to the end of B, or to the start of I."""
    retained: list[list[int]]
    """``[route][stage]``: held between the end of I and the end of W; meanwhile, while I runs, the larger of both is."""
    static: list[int]
    """``[device]``: always held."""
    working: list[list[int]]
    """``[route][device]``: held by each B, I and W while it runs."""
    limit: list[int] | None
    """``[device]``; ``None``: unlimited."""
    gather: list[list[int]]
    """``[route][kind * stages + stage]``: what its device has gathered and fetched when the stage's first operation may start."""
    scatter: list[list[int]]
    """``[route][kind * stages + stage]``: what its device still has to scatter when the stage's last operation has ended."""
    traffic: bool
    """Whether some device gathers or scatters."""
    copy_out: list[list[int]]
    """``[route][stage]``: how long a copy of an activation to the host takes; -1: none can be made."""
    copy_in: list[list[int]]
    """``[route][stage]``: how long the copy back takes; -1: none can be made."""
    margin: list[list[int]]
    """``[route][stage]``: how long before the backward the copy back is over."""
    away: list[list[int]]
    """``[route][stage]``: what of an activation is on the host between the copies."""
    host: int | None
    """What the host holds at most; ``None``: unlimited."""
    place: list[list[int]]
    """``[route][kind * stages + stage]``: the device."""
    over: list[list[int]]
    """``[route][stage]``: how long what a forward leaves behind travels to the device that runs the backward."""
    per_pass: bool
    """Whether it does so for every pass; then ``gather`` and ``scatter`` are those of the stage alone."""
    scattered: list[list[int]]
    """``[route][stage]``: of ``scatter`` the part without the optimizer step."""


@lru_cache(maxsize=2)  # every schedule of a pipeline is checked against the same
def facts_of(pipeline: Pipeline, ticks_per_unit: int | None) -> Facts:
    """The facts of a pipeline.

    Its integer times can tell ticks of ``ticks_per_unit`` per unit exactly. ``None``: they are ``RESOLUTION`` times
    finer than the costs, for times that were recorded as doubles.

    Raises:
        PipelineError: which stages recompute is left open, or several numbers of microbatches are asked for.
    """
    pipeline = by_stage(pipeline)
    again, each = _recomputing(pipeline), _factors(pipeline)
    times, amounts = _times(pipeline, again, each), _amounts(pipeline, again, each)
    amounts["away"] = [away_of(pipeline, r, row, each[r]) for r, row in enumerate(amounts["activation"])]
    times |= copy_times(pipeline, amounts["away"], each)
    memory, devices = pipeline.memory, range(pipeline.devices)
    weights = held_weights(pipeline)
    static: Row = [_entry(memory.static, d) * _copies(pipeline, d) + weights[d] for d in devices]
    limit: Row = [] if memory.limit is None else [_entry(memory.limit, d) for d in devices]
    working = _working(pipeline, each)
    finest = _denominator(x for table in times.values() for row in table for x in row)
    per_time = finest * RESOLUTION if ticks_per_unit is None else math.lcm(finest, ticks_per_unit)
    host = None if pipeline.offload is None else pipeline.offload.host_limit
    beside: Row = [*static, *limit, *(x for row in working for x in row), host]
    per_amount = _denominator(x for table in (*amounts.values(), [beside]) for row in table for x in row)
    return Facts(
        per_time=per_time,
        per_amount=per_amount,
        **{name: once_each(partial(_integers, per_time), table) for name, table in times.items()},
        **{name: once_each(partial(_integers, per_amount), table) for name, table in amounts.items()},
        static=_integers(per_amount, static),
        working=[_integers(per_amount, row) for row in working],
        limit=None if memory.limit is None else _integers(per_amount, limit),
        host=None if host is None else int(host * per_amount),
        per_pass=pipeline.data_parallel.per_pass,
        traffic=any(x for name in ("gather", "scatter") for row in times[name] for x in row),
        place=[places(pipeline, route) for route in range(len(pipeline.routes))],
    )


def _times(pipeline: Pipeline, again: Collection[int], each: list[list[Factors]]) -> dict[str, list[Row]]:
    """The times of :class:`Facts` by their names, in the user's unit.

    ``again``: the stages that recompute; ``each``: the factors ``[route][stage]``.
    """
    routes, latency, occupancy = pipeline.routes, pipeline.links.latency, pipeline.links.occupancy
    traffic, backs = pipeline.data_parallel, pipeline.backward_routes or routes
    fetched, optimizer = before_step(pipeline), pipeline.costs.optimizer or Fraction(0)
    both = ({way: _traffic(pipeline, way, of) for way in set(routes)} for of in (traffic.all_gather, traffic.reduce_scatter))
    gather, scatter = ([of_way[route] for route in routes] for of_way in both)
    on = [places(pipeline, route) for route in range(len(routes))]
    kinds = Kind.W + pipeline.costs.weight_pieces

    def overlap(route: tuple[int, ...]) -> Row:
        return _by_stage(pipeline, route, pipeline.costs.overlap) or [None] * pipeline.stages

    def holding(step: int, route: tuple[int, ...], by: list[Factors]) -> Row:
        return [_between(occupancy, *pair[::step]) * of.held for pair, of in zip(pairwise(route), by, strict=False)]

    return {
        "duration": _with_fetches(pipeline, once_each(partial(_durations, pipeline, again), routes, backs, each)),
        "overlap": once_each(overlap, routes),
        "over": once_each(lambda *both: [_between(latency, a, b) for a, b in zip(*both, strict=True)], routes, backs),
        "up": once_each(lambda route: [_between(latency, a, b) for a, b in pairwise(route)], routes),
        "down": once_each(lambda route: [_between(latency, b, a) for a, b in pairwise(route)], backs),
        "up_held": once_each(partial(holding, 1), routes, each),
        "down_held": once_each(partial(holding, -1), routes, each),
        "gather": [[t + fetched[d] for t, d in zip(row * kinds, of, strict=True)] for row, of in zip(gather, on, strict=True)],
        "scatter": [
            [t + _entry(optimizer, d) for t, d in zip(row * kinds, of, strict=True)] for row, of in zip(scatter, on, strict=True)
        ],
        "scattered": [*scatter],
    }


def _factors(pipeline: Pipeline) -> list[list[Factors]]:
    """``[route][stage]``: what the microbatches of the route take beside one of the costs."""
    alike = Factors(Fraction(1), Fraction(1), Fraction(1))
    found = [[alike] * pipeline.stages] * len(pipeline.routes)
    someone = {route: m for m, route in enumerate(pipeline.route_of_microbatch)} if pipeline.mix.differs else {}
    known: dict[tuple[Factors, ...], list[Factors]] = {}
    for route, m in someone.items():
        stages = range(pipeline.stages if pipeline.mix.by_stage else 1)
        each = tuple(factors(pipeline, m, stage) for stage in stages)
        found[route] = known.setdefault(each, list(each) * (pipeline.stages // len(each)))
    return found


def _with_fetches(pipeline: Pipeline, rows: list[Row]) -> list[Row]:
    """Durations ``[route][kind * stages + stage]`` with what is fetched for an operation."""
    if not pipeline.links.weights:
        return rows
    waits = [fetch_times(pipeline, route) for route in range(len(rows))]
    return [[None if x is None else x + wait for x, wait in zip(*both, strict=True)] for both in zip(rows, waits, strict=True)]


def _durations(
    pipeline: Pipeline, again: Collection[int], route: tuple[int, ...], back: tuple[int, ...], each: list[Factors]
) -> Row:
    """``[kind * stages + stage]`` of a route, in the user's unit; ``back``: the devices of its backwards."""
    costs = pipeline.costs
    forward, full, input_, weight, extra = (
        _by_stage(pipeline, route, value, on)
        for value, on in (
            (costs.forward, route),
            (costs.backward, back),
            (costs.backward_input, back),
            (costs.backward_weight, back),
            (costs.recompute, back),
        )
    )
    if costs.backward is None:
        full = [x + y for x, y in zip(input_, weight, strict=True)]
    for stage in again:
        for backward in (full, input_):
            if backward:
                backward[stage] += extra[stage]
    if pipeline.mix.differs:
        _differ(pipeline, route, again, each, (forward, full, input_, weight))
    if pipeline.runtime == "torch" and input_:  # the input of the model needs no gradient: W is the whole backward there
        input_[0], weight[0] = Fraction(0), full[0]
    absent = [None] * pipeline.stages
    parts = [[x / costs.weight_pieces for x in weight]] * costs.weight_pieces
    return [x for row in (forward, full, input_, *parts) for x in (row or absent)]


def _differ(
    pipeline: Pipeline, route: tuple[int, ...], again: Collection[int], each: list[Factors], rows: tuple[list[Fraction], ...]
) -> None:
    """Make the durations of ``F``, ``B``, ``I`` and ``W`` those of microbatches with these factors."""
    costs, stages = pipeline.costs, range(pipeline.stages)
    none = [Fraction(0)] * pipeline.stages
    part, input_, full, extra = (
        _by_stage(pipeline, route, value) or list(none)
        for value in (
            costs.forward_quadratic,
            costs.backward_input_quadratic,
            costs.backward_quadratic,
            costs.recompute_quadratic,
        )
    )
    if costs.backward is None or costs.backward_quadratic is None:
        full = list(input_)
    for stage in again:
        full[stage] += extra[stage]
        input_[stage] += extra[stage]
    for row, squares in zip(rows, (part, full, input_, none), strict=True):
        for stage in stages if row else ():
            by, square = each[stage], squares[stage]
            row[stage] = (row[stage] - square) * by.time + square * by.square if square else row[stage] * by.time


def _working(pipeline: Pipeline, each: list[list[Factors]]) -> list[list[Fraction]]:
    """``[route][device]``: what a backward takes while it runs, as large as the microbatch; of a device's stages the largest."""
    given = pipeline.memory.working or Fraction(0)

    def row(route: tuple[int, ...], by: list[Factors]) -> list[Fraction]:
        held = [[of.held for of, on in zip(by, route, strict=True) if on == d] for d in range(pipeline.devices)]
        return [_entry(given, d) * max(own or [of.held for of in by]) for d, own in enumerate(held)]

    return once_each(row, pipeline.backward_routes or pipeline.routes, each)


def _amounts(pipeline: Pipeline, again: Collection[int], factors_of: list[list[Factors]]) -> dict[str, list[Row]]:
    """The amounts of :class:`Facts` per stage by their names, in the user's unit.

    ``again``: the stages that recompute; ``factors_of``: the factors ``[route][stage]``.
    """
    memory = pipeline.memory

    def row(route: tuple[int, ...], each: list[Factors]) -> tuple[Row, Row]:
        whole = _by_stage(pipeline, route, memory.activation)
        activation = list(whole)
        saved = _by_stage(pipeline, route, memory.recompute_saved)
        for stage in again:
            activation[stage] -= saved[stage]
        retained = _by_stage(pipeline, route, memory.retained) or list(activation)
        if pipeline.runtime == "torch":  # it keeps all until W, what I has made again included
            retained = [activation[0], *(max(of) for of in zip(whole[1:], activation[1:], retained[1:], strict=True))]
        held = [by.held for by in each]
        return [x * y for x, y in zip(activation, held, strict=True)], [x * y for x, y in zip(retained, held, strict=True)]

    found = once_each(row, pipeline.routes, factors_of)
    return {"activation": [held for held, _ in found], "retained": [kept for _, kept in found]}


def shortest(facts: Facts) -> int:
    """The shortest positive duration; 0 if nothing takes any time."""
    return min((x for rows in (facts.duration, facts.overlap) for row in rows for x in row if x > 0), default=0)


def horizon(pipeline: Pipeline, facts: Facts) -> int:
    """A time by which every schedule that wastes none has ended: all operations and transfers, one after the other."""
    stages = pipeline.stages
    taken = Counter(pipeline.route_of_microbatch)
    total = 0
    for route, microbatches in taken.items():
        rows = [facts.duration[route][first : first + stages] for first in range(0, len(facts.duration[route]), stages)]
        hops = (facts.up, facts.down, facts.up_held, facts.down_held, facts.over)
        total += microbatches * (sum(max(sum(row), 0) for row in rows) + sum(sum(of[route]) for of in hops))
        total += microbatches * max(sum(facts.overlap[route]), 0)
        total += microbatches * sum(max(x, 0) for of in (facts.copy_out, facts.copy_in, facts.margin) for x in of[route])
        total += microbatches * (2 * sum(facts.gather[route][:stages]) + sum(facts.scattered[route])) * facts.per_pass
    total += sum(max(map(max, rows)) for rows in (facts.gather, facts.scatter))
    return total


def _by_stage(
    pipeline: Pipeline, route: tuple[int, ...], value: Value | None, on: tuple[int, ...] | None = None
) -> list[Fraction]:
    """What each stage of a route has of a value; nothing where there is none. ``on``: the devices whose value counts, by default
    those of the route."""
    if value is None:
        return []
    if pipeline.costs.per == "stage":
        return [_entry(value, stage) for stage in range(len(route))]
    chunks = Counter(route)
    return [_entry(value, other) / chunks[device] for device, other in zip(route, on or route, strict=True)]


def _recomputing(pipeline: Pipeline) -> Collection[int]:
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
    most = max(len(held) for held in stages)
    return Fraction(len(set.union(*stages)), most) if most else Fraction(1)  # it may run backwards alone


def _traffic(pipeline: Pipeline, route: tuple[int, ...], value: Value) -> list[Fraction]:
    """What a stage's device exchanges on the stage's side of its computations.

    Without overlap that is everything. With it, gathers go up the device's stages and scatters down: the stage's own and
    those of the stages before it. Pass by pass it is the stage's own.
    """
    result = []
    for stage, device in enumerate(route):
        stages = sorted({s for way in pipeline.ways for s, d in enumerate(way) if d == device})
        counted = [s for s in stages if s <= stage] if pipeline.data_parallel.overlap else stages
        counted = [stage] if pipeline.data_parallel.per_pass else counted
        if pipeline.data_parallel.per == "stage":
            result.append(sum((_entry(value, s) for s in counted), Fraction(0)))
        else:
            result.append(_entry(value, device) * len(counted) / len(stages))
    return result


def _denominator(values: Iterable[Fraction | None]) -> int:
    return math.lcm(*{value.denominator for value in values if value is not None})


def _integers(per_unit: int, row: Row) -> list[int]:
    """The values times ``per_unit``, which makes them integers; -1 for ``None``."""
    return [-1 if value is None else value.numerator * (per_unit // value.denominator) for value in row]
