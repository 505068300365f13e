"""Where operations run, where weights live, and what devices fetch: read from the pipeline's own fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from ppopt.op import Kind
from ppopt.pipeline import Pipeline

ZERO = Fraction(0)


class Weights(NamedTuple):
    """What a device does with weights in a step; times and amounts in the user's units."""

    stages_stored: int
    weights_stored: Fraction
    weight_fetches: int
    weights_fetched: Fraction
    fetch_time: Fraction


def places(pipeline: Pipeline, route: int) -> list[int]:
    """``[kind * stages + stage]``: the device of an operation of a route."""
    forward = pipeline.routes[route]
    backward = pipeline.backward_routes[route] if pipeline.backward_routes else forward
    return [*forward, *backward * (2 + pipeline.costs.weight_pieces)]


def home(pipeline: Pipeline, route: int, stage: int) -> int:
    """The device that keeps the weights of a stage."""
    kept = pipeline.memory.weights_on
    return pipeline.routes[route][stage] if kept is None else kept[route][stage]


def fetch_times(pipeline: Pipeline, route: int) -> list[Fraction]:
    """``[kind * stages + stage]``: how long an operation waits for weights that it fetches itself."""
    if pipeline.memory.weights_kept == "step":
        return [ZERO] * ((Kind.W + pipeline.costs.weight_pieces) * pipeline.stages)
    on = places(pipeline, route)
    return [
        ZERO if kind >= Kind.W else fetch_time(pipeline, home(pipeline, route, stage), on[kind * pipeline.stages + stage])
        for kind in range(Kind.W + pipeline.costs.weight_pieces)
        for stage in range(pipeline.stages)
    ]


def fetch_time(pipeline: Pipeline, source: int, target: int) -> Fraction:
    """How long a device waits for weights of another one."""
    table = pipeline.links.weights
    if table is None or source == target:
        return ZERO
    return table if isinstance(table, Fraction) else table[source][target]


def _lacking(pipeline: Pipeline) -> list[set[tuple[int, int]]]:
    """``[device]``: the stages that it runs without their weights, with the device that keeps them."""
    found: list[set[tuple[int, int]]] = [set() for _ in range(pipeline.devices)]
    for route in set(pipeline.route_of_microbatch):
        on = places(pipeline, route)
        for stage in range(pipeline.stages):
            source = home(pipeline, route, stage)
            for device in {on[stage], on[Kind.B * pipeline.stages + stage]} - {source}:
                found[device].add((stage, source))
    return found


def before_step(pipeline: Pipeline) -> list[Fraction]:
    """Per device, how long it fetches before its first operation."""
    if pipeline.memory.weights_kept != "step":
        return [ZERO] * pipeline.devices
    return [
        sum((fetch_time(pipeline, source, device) for _, source in lacking), ZERO)
        for device, lacking in enumerate(_lacking(pipeline))
    ]


def _stage_weights(pipeline: Pipeline) -> list[Fraction]:
    given = pipeline.memory.weights
    if given is None:
        return [ZERO] * pipeline.stages
    return list(given) if isinstance(given, tuple) else [given] * pipeline.stages


def _stored(pipeline: Pipeline) -> list[set[int]]:
    kept: list[set[int]] = [set() for _ in range(pipeline.devices)]
    for route in range(len(pipeline.routes)):
        for stage in range(pipeline.stages):
            kept[home(pipeline, route, stage)].add(stage)
    return kept


def held_weights(pipeline: Pipeline) -> list[Fraction]:
    """Per device, the weights that it holds all the time: its own, and room for what it fetches."""
    each = _stage_weights(pipeline)
    result = []
    for own, lacking in zip(_stored(pipeline), _lacking(pipeline), strict=True):
        copies = [each[stage] for stage, _ in lacking]
        more = sum(copies, ZERO) if pipeline.memory.weights_kept == "step" else max(copies, default=ZERO)
        result.append(sum((each[stage] for stage in own), ZERO) + more)
    return result


def weights_of(pipeline: Pipeline, ran: Sequence[Sequence[tuple[int, int, int]]]) -> Iterator[Weights]:
    """Per device; ``ran[device]``: route, kind and stage of each operation that it has run."""
    each, stored, lacking = _stage_weights(pipeline), _stored(pipeline), _lacking(pipeline)
    for device, row in enumerate(ran):
        if pipeline.memory.weights_kept == "step":
            made = sorted(lacking[device])
        else:
            needed = ((stage, home(pipeline, route, stage)) for route, kind, stage in row if kind < Kind.W)
            made = [(stage, source) for stage, source in needed if source != device]
        yield Weights(
            len(stored[device]),
            sum((each[stage] for stage in stored[device]), ZERO),
            len(made),
            sum((each[stage] for stage, _ in made), ZERO),
            sum((fetch_time(pipeline, source, device) for _, source in made), ZERO),
        )
