"""A pipeline of layers with what its stages cost and hold, read layer by layer from the layers themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ppopt.pipeline import Costs, DataParallel, Layer, Pipeline, PipelineError

ZERO = Fraction(0)


@dataclass
class _Stage:
    """What the layers of a stage take and hold together."""

    forward: Fraction = ZERO
    full: Fraction = ZERO
    input: Fraction = ZERO
    weight: Fraction = ZERO
    activation: Fraction = ZERO
    retained: Fraction = ZERO
    whole: Fraction = ZERO
    """The activation, whether it is recomputed or not."""
    weights: Fraction = ZERO
    gather: Fraction = ZERO
    scatter: Fraction = ZERO
    optimizer: Fraction = ZERO
    squares: tuple[Fraction, Fraction, Fraction] = ZERO, ZERO, ZERO
    """What of the forward, the input gradient and the whole backward grows with the square of a sequence's length."""

    def add(self, layer: Layer, level: str | None, trained_before: bool) -> None:
        """One more layer, which recomputes at a level."""
        self.forward += layer.forward
        self.weights += layer.weights
        if not layer.frozen:
            self.gather += layer.all_gather
            self.scatter += layer.reduce_scatter
            self.optimizer += layer.optimizer
        there, back, whole = self.squares
        self.squares = there + layer.forward_quadratic, back, whole
        if layer.frozen and not trained_before:
            return
        how = next((each for each in layer.recompute if each.name == level), None)
        again, saved = (ZERO, ZERO) if how is None else (how.time, how.saved)
        more = ZERO if how is None else how.quadratic
        part = layer.backward_input_quadratic
        full = part if layer.backward_quadratic is None or layer.frozen else layer.backward_quadratic
        self.squares = self.squares[0], back + part + more, whole + full + more
        split = layer.backward_input is not None
        weight = ZERO if layer.frozen else layer.backward_weight or ZERO
        both = (layer.backward_input or ZERO) + weight
        self.input += again + (layer.backward_input or ZERO)
        self.weight += weight
        self.full += again + (both if layer.backward is None or (layer.frozen and split) else layer.backward)
        held = layer.activation - saved
        self.activation += held
        self.whole += layer.activation
        self.retained += ZERO if layer.frozen else held if layer.retained is None else layer.retained


def by_stage(pipeline: Pipeline) -> Pipeline:
    """The same pipeline with costs and memory per stage and no stage that recomputes; the very same where it has no layers.

    Raises:
        PipelineError: which layers recompute, or how they are cut, is left open.
    """
    if pipeline.layers is None:
        return pipeline
    layers = [(g, n) for g, group in enumerate(pipeline.layers.groups) for n in range(group.count)]
    trained = [not group.frozen for group in pipeline.layers.groups]
    stages, rest = [], iter(layers)
    for stage, count in enumerate(pipeline.counts):
        own = [next(rest) for _ in range(count)]
        stages.append(_Stage())
        for (group, _), level in zip(own, _levels(pipeline, stage, [g for g, _ in own]), strict=True):
            stages[-1].add(pipeline.layers.groups[group], level, any(trained[:group]))
    memory = replace(
        pipeline.memory,
        activation=tuple(stage.activation for stage in stages),
        retained=tuple(max(stage.retained, stage.whole) if pipeline.runtime == "torch" else stage.retained for stage in stages),
        recompute_saved=None,
        limit=None,
        static=ZERO,
    )
    exchanged = pipeline.data_parallel
    if any(stage.gather or stage.scatter for stage in stages):
        gather, scatter = ([getattr(stage, name) for stage in stages] for name in ("gather", "scatter"))
        exchanged = DataParallel(gather, scatter, exchanged.overlap, per="stage")
    plain = pipeline.flat().changed(
        costs=_costs(pipeline, stages, split=pipeline.layers.groups[0].backward_input is not None),
        memory=memory,
        data_parallel=exchanged,
        recompute="none",
        route_of_microbatch=pipeline.route_of_microbatch,
    )
    if pipeline.backward_routes or pipeline.memory.weights_on is not None:  # then weights are said stage by stage
        weights = tuple(stage.weights for stage in stages)
        memory = replace(plain.memory, static=pipeline.memory.static, weights=weights, limit=pipeline.memory.limit)
        return plain.changed(memory=memory, route_of_microbatch=pipeline.route_of_microbatch)
    static = []
    for device in range(pipeline.devices):
        held = [{s for s, d in enumerate(route) if d == device} for route in pipeline.routes]
        every = set.union(*held)
        copies = Fraction(len(every), max(map(len, held)))
        given = pipeline.memory.static
        beside = given[device] if isinstance(given, tuple) else given
        static.append(beside + sum((stages[s].weights for s in every), ZERO) / copies)
    memory = replace(plain.memory, static=tuple(static), limit=pipeline.memory.limit)
    return plain.changed(memory=memory, route_of_microbatch=pipeline.route_of_microbatch)


def _costs(pipeline: Pipeline, stages: list[_Stage], *, split: bool) -> Costs:
    return Costs(
        per="stage",
        forward=[stage.forward for stage in stages],
        backward=[stage.full for stage in stages],
        backward_input=[stage.input for stage in stages] if split else None,
        backward_weight=[stage.weight for stage in stages] if split else None,
        optimizer=_optimizer(pipeline, stages),
        weight_pieces=pipeline.costs.weight_pieces,
        forward_quadratic=[stage.squares[0] for stage in stages],
        backward_input_quadratic=[stage.squares[1] for stage in stages] if split else None,
        backward_quadratic=[stage.squares[2] for stage in stages],
    )


def _optimizer(pipeline: Pipeline, stages: list[_Stage]) -> Any:
    """The optimizer step of each device, where the layers say it; else what is given."""
    if not any(stage.optimizer for stage in stages):
        return pipeline.costs.optimizer
    held = [{s for route in pipeline.routes for s, d in enumerate(route) if d == device} for device in range(pipeline.devices)]
    return [sum((stages[s].optimizer for s in every), ZERO) for every in held]


def _levels(pipeline: Pipeline, stage: int, groups: list[int]) -> Iterator[str | None]:
    """The level of each layer of a stage: of alike layers the first ones recompute."""
    chosen: Any = pipeline.recompute
    kinds = pipeline.layers.groups if pipeline.layers else ()
    if chosen == "choose":
        raise PipelineError("pipeline.recompute", "a schedule can be checked only once it is said which layers recompute")
    if isinstance(chosen, str):
        for group in groups:
            last = kinds[group].recompute[-1].name if kinds[group].recompute else None
            yield last if chosen == "all" else None if chosen == "none" else chosen
        return
    left = {g: [level for name, level, n in chosen[stage] if name == kinds[g].name for _ in range(n)] for g in set(groups)}
    for group in groups:
        yield left[group].pop(0) if left[group] else None
