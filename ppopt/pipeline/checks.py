"""Whether the parts of a pipeline fit each other: list lengths, and what one value demands of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppopt.pipeline.choices import ANY, placements_of
from ppopt.pipeline.parts import DURATIONS, PipelineError, check_length
from ppopt.pipeline.tables import by_stage

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline


def check_open_placement(pipeline: Pipeline) -> None:
    """Raise where something is said of single stages, and several placements are possible.

    Raises:
        PipelineError: something is.
    """
    if len(placements_of(pipeline.placement, pipeline.chunks)) == 1 and pipeline.placement != ANY:
        return
    problem = "belongs to one placement and number of chunks, and these are left open; "
    for table, per in (("costs", pipeline.costs.per), ("data_parallel", pipeline.data_parallel.per)):
        if per == "stage":
            raise PipelineError(f"{table}.per", f'"stage" {problem}expected "device"')
    if not isinstance(pipeline.recompute, str):
        raise PipelineError("pipeline.recompute", f'a list of stages {problem}expected "none", "all" or "choose"')


def check_lengths(pipeline: Pipeline) -> None:
    """Raise where a list has another length than there are devices or stages."""
    length_of = {"stage": pipeline.stages, "device": pipeline.devices}
    lists = [
        ("costs", pipeline.costs, pipeline.costs.per, DURATIONS),
        ("costs", pipeline.costs, "device", ("optimizer",)),
        ("memory", pipeline.memory, pipeline.costs.per, ("activation", "retained", "recompute_saved")),
        ("memory", pipeline.memory, "device", ("static", "limit")),
        ("data_parallel", pipeline.data_parallel, pipeline.data_parallel.per, ("all_gather", "reduce_scatter")),
    ]
    for table, part, per, names in lists:
        for name in names:
            check_length(f"{table}.{name}", getattr(part, name), length_of[per], per)


def check_activation(pipeline: Pipeline) -> None:
    """Raise where a part of the activation is more than the activation.

    Raises:
        PipelineError: a part is.
    """
    activation = by_stage(pipeline, pipeline.memory.activation)
    for name, problem in (
        ("retained", "more is retained after the input gradient than the activation holds"),
        ("recompute_saved", "more is saved by recomputing than the activation holds"),
    ):
        given = getattr(pipeline.memory, name)
        part = activation if given is None else by_stage(pipeline, given)
        for route, rows in enumerate(zip(part, activation, strict=True)):
            for stage, (some, most) in enumerate(zip(*rows, strict=True)):
                if some is not None and most is not None and some > most:
                    index = stage if pipeline.costs.per == "stage" else pipeline.routes[route][stage]
                    raise PipelineError(f"memory.{name}[{index}]" if isinstance(given, tuple) else f"memory.{name}", problem)


def check_recompute(pipeline: Pipeline) -> None:
    """Raise where stages are to recompute, but the time and the memory of that are not given.

    Raises:
        PipelineError: they are not.
    """
    if pipeline.recompute == "none" or pipeline.layers is not None:
        return
    costs, memory = pipeline.costs, pipeline.memory
    for key, value in (("costs.recompute", costs.recompute), ("memory.recompute_saved", memory.recompute_saved)):
        if value is None:
            raise PipelineError(key, "missing; pipeline.recompute needs it")
    if costs.overlap is not None:
        problem = "what an overlapped pair takes with recomputing is not known; leave it out (forward + backward)"
        raise PipelineError("costs.overlap", problem)
