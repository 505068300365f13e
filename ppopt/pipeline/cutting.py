"""What the stages of a partition cost and hold, from their layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ppopt.pipeline.layer_times import work_of_layers
from ppopt.pipeline.layers import Layers, Level
from ppopt.pipeline.partitions import BEST, Counts, balanced, even
from ppopt.pipeline.parts import Costs, Memory, PipelineError, Value
from ppopt.pipeline.recompute import CHOOSE
from ppopt.pipeline.traffic import DataParallel
from ppopt.pipeline.work_map import room_for_weights

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline

StageLevels: TypeAlias = tuple[tuple[str, str, int], ...]
"""Of a stage: the first ``count`` of its layers of a group recompute at a level, as ``(group, level, count)``."""


def counts_of(pipeline: Pipeline) -> Counts:
    """The number of layers of each stage.

    Raises:
        PipelineError: the partition is left open, or leaves a stage without a layer.
    """
    layers, partition = pipeline.layers, pipeline.partition
    assert layers is not None
    if isinstance(partition, tuple):
        return partition
    if partition == "even":
        return even(layers, pipeline.stages)
    if partition == BEST:
        problem = '"best" is left open, which only solve settles; expected "even", "balanced" or the layers of each stage here'
        raise PipelineError("pipeline.partition", problem)
    work = work_of_layers(layers, pipeline.recompute)
    if pipeline.mix.lengths:
        work = tuple(x + more for x, more in zip(work, _more_by_length(pipeline, layers), strict=True))
    return balanced(work, pipeline.routes, pipeline.route_of_microbatch)


def _more_by_length(pipeline: Pipeline, layers: Layers) -> list[Fraction]:
    """Per layer, by how much its work is more because of the lengths, for as many tokens as the costs are for."""
    each = [pipeline.mix.scale(m, 0) for m in range(pipeline.microbatches)]
    factor = sum((by.square for by in each), Fraction(0)) / sum((by.linear for by in each), Fraction(0)) - 1
    parts = zip(layers.each("forward_quadratic"), layers.each("backward_input_quadratic"), strict=True)
    of_group = [((there or 0) + (back or 0)) * factor for there, back in parts]
    return [Fraction(of_group[group]) for group in layers.group_of]


def groups_of(layers: Layers, counts: Sequence[int]) -> list[list[int]]:
    """``[stage][group]``: how many layers of the group are in the stage."""
    table, begin = [], 0
    for count in counts:
        row = [0] * len(layers.groups)
        for layer in range(begin, begin + count):
            row[layers.group_of[layer]] += 1
        table.append(row)
        begin += count
    return table


def summed(table: Sequence[Sequence[int]], each: Sequence[Fraction | None]) -> tuple[Fraction, ...]:
    """Per stage, what its layers have together; ``table`` as of :func:`groups_of`."""
    return tuple(sum((n * value for n, value in zip(row, each, strict=True) if n and value), Fraction(0)) for row in table)


# --- recomputing ---


def recomputing_of(pipeline: Pipeline) -> frozenset[int]:
    """The stages that recompute.

    Raises:
        PipelineError: that is left open.
    """
    if pipeline.recompute == CHOOSE:
        raise PipelineError(
            "pipeline.recompute",
            '"choose" leaves open which stages recompute; only solve decides it, and compare shows none and all; '
            'expected "none", "all" or a list of stages here',
        )
    if pipeline.recompute == "none":
        return frozenset()
    if pipeline.layers is not None:
        return frozenset(stage for stage, chosen in enumerate(levels_of(pipeline)) if chosen)
    return frozenset(range(pipeline.stages) if pipeline.recompute == "all" else pipeline.recompute)


def read_levels(value: Any, layers: Layers, counts: Counts | None, stages: int) -> Any:
    """``pipeline.recompute`` of layers: a word, the name of a level, or one table per stage; ``counts``: where they are known.

    Raises:
        PipelineError: it is none of these, or there are no such layers or levels.
    """
    key = "pipeline.recompute"
    words = ("none", "all", CHOOSE, *layers.levels)
    if isinstance(value, str):
        if value not in words:
            raise PipelineError(key, f"expected one of {', '.join(words)}, or one table per stage, got {value!r}")
        if value in ("all", CHOOSE) and not layers.levels:
            problem = f"{value!r} needs layers that list a way to recompute (layers[…].recompute), and none does"
            raise PipelineError(key, f'{problem}; expected "none", or such layers')
        return value
    if not isinstance(value, list | tuple):
        raise PipelineError(key, f"expected one of {', '.join(words)}, or one table per stage, got {value!r}")
    if not value:
        return "none"
    if len(value) != stages:
        raise PipelineError(key, f"expected one table per stage ({stages}), got {len(value)}")
    read = tuple(tuple(_stage_levels(f"{key}[{stage}]", given, layers)) for stage, given in enumerate(value))
    if counts is not None:
        _check_levels(read, layers, counts)
    return read if any(read) else "none"


def _stage_levels(key: str, given: Any, layers: Layers) -> Iterator[tuple[str, str, int]]:
    if isinstance(given, tuple):  # as it is kept
        given = {group: {level: n for other, level, n in given if other == group} for group, _, _ in given}
    if not isinstance(given, dict):
        raise PipelineError(key, f"expected a table such as {{decoder = {{full = 3}}}}, got {given!r}")
    names = [group.name for group in layers.groups]
    for name in given:
        if name not in names:
            raise PipelineError(f"{key}.{name}", f"there are no such layers; expected one of {', '.join(names)}")
    for group in layers.groups:
        levels = given.get(group.name, {})
        if not isinstance(levels, dict):
            raise PipelineError(f"{key}.{group.name}", f"expected a table such as {{full = 3}}, got {levels!r}")
        known = [level.name for level in group.recompute]
        for name, count in levels.items():
            if name not in known:
                problem = f"these layers list no such way to recompute; expected one of {', '.join(known) or 'none at all'}"
                raise PipelineError(f"{key}.{group.name}.{name}", problem)
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise PipelineError(f"{key}.{group.name}.{name}", f"expected a whole number >= 0 of layers, got {count!r}")
        yield from ((group.name, name, levels[name]) for name in known if levels.get(name))


def _check_levels(read: Sequence[StageLevels], layers: Layers, counts: Counts) -> None:
    for stage, (chosen, row) in enumerate(zip(read, groups_of(layers, counts), strict=True)):
        for group, there in zip(layers.groups, row, strict=True):
            asked = sum(count for name, _, count in chosen if name == group.name)
            if asked > there:
                problem = f"stage {stage} has {there} layers {group.name!r}, and {asked} of them are to recompute"
                raise PipelineError(f"pipeline.recompute[{stage}].{group.name}", problem)


def levels_of(pipeline: Pipeline) -> list[list[tuple[int, Level, int]]]:
    """Per stage, which layers recompute: the group, the level, and how many.

    Raises:
        PipelineError: the partition, or which layers recompute, is left open.
    """
    layers, recompute = pipeline.layers, cast("str | tuple[StageLevels, ...]", pipeline.recompute)
    assert layers is not None
    table = groups_of(layers, pipeline.counts)
    if recompute == "none":
        return [[] for _ in table]
    if isinstance(recompute, str):
        level_of = [layers.level_of(group, recompute) for group in range(len(layers.groups))]
        return [
            [(group, level, n) for group, (level, n) in enumerate(zip(level_of, row, strict=True)) if level is not None and n]
            for row in table
        ]
    number = {group.name: i for i, group in enumerate(layers.groups)}
    found = []
    for stage in recompute:
        each = [(number[group], layers.level_of(number[group], level), n) for group, level, n in stage]
        found.append([(group, level, n) for group, level, n in each if level is not None])
    return found


def tables_of(pipeline: Pipeline) -> Any:
    """``pipeline.recompute`` of layers as one table per stage, or ``"none"``.

    Raises:
        PipelineError: the partition, or which layers recompute, is left open.
    """
    layers = pipeline.layers
    assert layers is not None
    tables = tuple(tuple((layers.groups[g].name, level.name, n) for g, level, n in stage) for stage in levels_of(pipeline))
    return tables if any(tables) else "none"


def parts_of(pipeline: Pipeline) -> tuple[Costs, Memory]:
    """Costs and memory per stage of a pipeline of layers whose partition is settled."""
    layers = pipeline.layers
    assert layers is not None
    table = groups_of(layers, pipeline.counts)
    chosen = [] if pipeline.recompute == CHOOSE else levels_of(pipeline)
    again = tuple(sum((n * level.time for _, level, n in stage), Fraction(0)) for stage in chosen)
    saved = tuple(sum((n * level.saved for _, level, n in stage), Fraction(0)) for stage in chosen)
    squares = tuple(sum((n * level.quadratic for _, level, n in stage), Fraction(0)) for stage in chosen)
    recomputes = pipeline.recompute not in ("none", CHOOSE)  # perhaps no layer does: those of the level may be frozen

    def stages(name: str) -> tuple[Fraction, ...]:
        return summed(table, layers.each(name))

    full: tuple[Fraction, ...] | None = None
    if any(group.backward is not None for group in layers.groups):
        parts = zip(*(layers.each(name) for name in ("backward", "backward_input", "backward_weight")), strict=True)
        full = summed(table, [b if b is not None else (i or Fraction(0)) + (w or Fraction(0)) for b, i, w in parts])
    activation, retained = layers.each("activation"), layers.each("retained")
    held = summed(table, [a if r is None else r for a, r in zip(activation, retained, strict=True)])
    less = [sum((n * level.saved for group, level, n in stage if retained[group] is None), Fraction(0)) for stage in chosen]
    keeps = tuple(whole - part for whole, part in zip(held, less or [Fraction(0)] * len(held), strict=True))
    costs = Costs(
        per="stage",
        forward=stages("forward"),
        backward_input=stages("backward_input") if layers.split else None,
        backward_weight=stages("backward_weight") if layers.split else None,
        backward=full,
        recompute=again if recomputes else None,
        optimizer=optimizer_of(pipeline, table),
        weight_pieces=pipeline.costs.weight_pieces,
        **_quadratic(layers, table, squares if recomputes else ()),
    )
    memory = dataclasses.replace(
        pipeline.memory,
        activation=summed(table, activation),
        retained=None if all(value is None for value in retained) else keeps,
        recompute_saved=saved if recomputes else None,
    )
    return costs, memory


def _quadratic(layers: Layers, table: Sequence[Sequence[int]], again: tuple[Fraction, ...]) -> dict[str, Any]:
    """The parts of the costs per stage that grow with the square of a sequence's length, where there are any.

    ``again``: of what the stages recompute; empty where none does.
    """
    found: dict[str, Any] = {
        name: summed(table, layers.each(name)) for name in ("forward_quadratic", "backward_input_quadratic") if layers.has(name)
    }
    if any(group.backward_quadratic is not None for group in layers.groups):
        parts = zip(*(layers.each(name) for name in ("backward_quadratic", "backward_input_quadratic")), strict=True)
        found["backward_quadratic"] = summed(table, [part if full is None else full for full, part in parts])
    if any(again):
        found["recompute_quadratic"] = again
    return found


def optimizer_of(pipeline: Pipeline, table: Sequence[Sequence[int]]) -> Value | None:
    """The optimizer step of each device: that of its layers where they have one; ``table`` as of :func:`groups_of`."""
    layers = pipeline.layers
    if layers is None or not layers.has("optimizer"):
        return pipeline.costs.optimizer
    each = summed(table, layers.each("optimizer"))
    found = [Fraction(0)] * pipeline.devices
    for device, stage in {(device, stage) for route in pipeline.routes for stage, device in enumerate(route)}:
        found[device] += each[stage]
    return tuple(found)


def exchange_of(pipeline: Pipeline) -> DataParallel:
    """The data-parallel traffic: that of the layers of each stage where they have any."""
    layers = pipeline.layers
    if layers is None or not layers.has("all_gather", "reduce_scatter"):
        return pipeline.data_parallel
    table = groups_of(layers, pipeline.counts)
    gather, scatter = (summed(table, layers.each(name)) for name in ("all_gather", "reduce_scatter"))
    return dataclasses.replace(pipeline.data_parallel, all_gather=gather, reduce_scatter=scatter, per="stage")


def given_parts(pipeline: Pipeline) -> dict[str, Any]:
    """Costs and data-parallel traffic of a pipeline of layers as they were given: without what follows from the cut."""
    layers = pipeline.layers
    assert layers is not None
    step = None if layers.has("optimizer") else pipeline.costs.optimizer
    found: dict[str, Any] = {"costs": Costs(optimizer=step, weight_pieces=pipeline.costs.weight_pieces)}
    if layers.has("all_gather", "reduce_scatter"):
        found["data_parallel"] = DataParallel(overlap=pipeline.data_parallel.overlap)
    return found


def check_step(pipeline: Pipeline, layers: Layers) -> None:
    """Raise where layers and the rest both say what weights take, or what is done once per step; or where weight gradients that
    the layers do not have are to come in pieces.

    Raises:
        PipelineError: they do, or are.
    """
    if pipeline.memory.weights is not None:
        raise PipelineError("memory.weights", "follows from the layers, which have weights")
    pieces = pipeline.costs.weight_pieces
    if pieces > 1 and not layers.split:
        problem = f"the layers give backward alone, so that no weight gradient is run by itself; expected 1, got {pieces}"
        raise PipelineError("costs.weight_pieces", problem)
    if layers.has("optimizer") and pipeline.costs.optimizer is not None:
        raise PipelineError("costs.optimizer", "follows from the layers, which give optimizer too")
    if layers.has("all_gather", "reduce_scatter"):
        given = pipeline.data_parallel
        for name in ("all_gather", "reduce_scatter"):
            if getattr(given, name):
                raise PipelineError(
                    f"data_parallel.{name}", "follows from the layers, which give all_gather or reduce_scatter too"
                )


def weights_of(pipeline: Pipeline) -> list[Fraction]:
    """Per device, the weights that it holds, for whatever route, and room for those that it fetches."""
    return room_for_weights(pipeline, weights_of_stages(pipeline))


def weights_of_stages(pipeline: Pipeline) -> Value | None:
    """The weights of each stage: those of its layers, or ``memory.weights``."""
    if pipeline.layers is None:
        return pipeline.memory.weights
    return summed(groups_of(pipeline.layers, pipeline.counts), pipeline.layers.each("weights"))


def flat(pipeline: Pipeline, memory: Memory | None) -> dict[str, Any]:
    """The fields of the same pipeline without layers; ``memory``: in place of its own, the weights of the layers not in it."""
    from ppopt.pipeline.amounts import copies

    memory = memory or pipeline.memory
    weights = weights_of(pipeline)
    given = memory.static if isinstance(memory.static, tuple) else (memory.static,) * pipeline.devices
    static = tuple(value + own / copies(pipeline, d) for d, (value, own) in enumerate(zip(given, weights, strict=True)))
    if pipeline.backward_routes or memory.weights_on:  # then they are said stage by stage
        memory, static = dataclasses.replace(memory, weights=weights_of_stages(pipeline)), given
    recomputing = pipeline.recompute if pipeline.recompute in ("none", CHOOSE) else tuple(sorted(pipeline.recomputing))
    return {
        "layers": None,
        "partition": "",
        "memory": dataclasses.replace(memory, static=static if any(weights) else memory.static),
        "recompute": recomputing,
        "route_of_microbatch": pipeline.route_of_microbatch,
    }
