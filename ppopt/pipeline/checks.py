"""Whether the parts of a pipeline fit each other: list lengths, and what one value demands of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ppopt.pipeline.choices import ANY, placements_of
from ppopt.pipeline.partitions import BEST
from ppopt.pipeline.parts import DURATIONS, PipelineError, check_length
from ppopt.pipeline.tables import by_stage

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline

MAX_OPS = 10**7
"""Largest number of operations (three per stage and microbatch) that a pipeline may have."""


def check_size(pipeline: Pipeline) -> None:
    """Raise where a pipeline has more than :data:`MAX_OPS` operations.

    Raises:
        PipelineError: it has.
    """
    pieces = pipeline.costs.weight_pieces
    operations = (2 + pieces) * pipeline.stages * pipeline.microbatches
    if operations > MAX_OPS:
        each = 3 if pieces == 1 else f"(2 + {pieces} pieces of W)"
        problem = f"at most {MAX_OPS} operations ({each} x stages x microbatches) are supported, got {operations}"
        raise PipelineError("pipeline.microbatches", problem)


def check_open_placement(pipeline: Pipeline) -> None:
    """Raise where something is said of single stages, and several placements are possible.

    Raises:
        PipelineError: something is.
    """
    if len(placements_of(pipeline.placement, pipeline.chunks)) == 1 and pipeline.placement != ANY:
        return
    problem = "belongs to one placement and number of chunks, and these are left open; "
    for key, value in (("pipeline.backward_routes", pipeline.backward_routes), ("memory.weights_on", pipeline.memory.weights_on)):
        if value:
            raise PipelineError(key, f"{problem}expected nothing")
    if isinstance(pipeline.memory.weights, tuple):
        raise PipelineError("memory.weights", f"a list {problem}expected one number")
    for table, per in (("costs", pipeline.costs.per), ("data_parallel", pipeline.data_parallel.per)):
        if per == "stage":
            raise PipelineError(f"{table}.per", f'"stage" {problem}expected "device"')
    if not isinstance(pipeline.recompute, str):
        raise PipelineError("pipeline.recompute", f'a list of stages {problem}expected "none", "all" or "choose"')


def check_lengths(pipeline: Pipeline) -> None:
    """Raise where a list has another length than there are devices or stages; where the cut is open, what is said of devices
    alone: all else is then that of some other cut."""
    length_of = {"stage": pipeline.stages, "device": pipeline.devices}
    lists: list[tuple[str, object, Literal["stage", "device"], tuple[str, ...]]] = [
        ("memory", pipeline.memory, "device", ("static", "limit", "working")),
        ("costs", pipeline.costs, "device", ("optimizer",)),
        ("costs", pipeline.costs, pipeline.costs.per, DURATIONS),
        ("memory", pipeline.memory, pipeline.costs.per, ("activation", "retained", "recompute_saved")),
        ("memory", pipeline.memory, "stage", ("weights",)),
        ("data_parallel", pipeline.data_parallel, pipeline.data_parallel.per, ("all_gather", "reduce_scatter")),
    ]
    for table, part, per, names in lists[:1] if pipeline.partition == BEST else lists:
        for name in names:
            check_length(f"{table}.{name}", getattr(part, name), length_of[per], per)


def check_passes(pipeline: Pipeline) -> None:
    """Raise where weights are gathered pass by pass, and something is open that no search knows how to decide with that.

    Raises:
        PipelineError: the stages are cut from layers, or it is open which of them recompute.
    """
    if not pipeline.data_parallel.per_pass:
        return
    if pipeline.layers is not None:
        problem = "not known of [[layers]], whose cuts are compared by what devices exchange once per step; expected false"
        raise PipelineError("data_parallel.per_pass", problem)
    if pipeline.recompute == "choose":
        problem = '"choose" is not decided together with data_parallel.per_pass; expected "none", "all" or a list of stages'
        raise PipelineError("pipeline.recompute", problem)


def check_activation(pipeline: Pipeline) -> None:
    """Raise where recomputing saves more than the activation.

    Raises:
        PipelineError: it does.
    """
    given, key = pipeline.memory.recompute_saved, "memory.recompute_saved"
    if given is None:
        return
    tables = by_stage(pipeline, given), by_stage(pipeline, pipeline.memory.activation)
    for route, rows in enumerate(zip(*tables, strict=True)):
        for stage, (saved, whole) in enumerate(zip(*rows, strict=True)):
            if saved is not None and whole is not None and saved > whole:
                index = stage if pipeline.costs.per == "stage" else pipeline.routes[route][stage]
                problem = "more is saved by recomputing than the activation holds"
                raise PipelineError(f"{key}[{index}]" if isinstance(given, tuple) else key, problem)


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
