"""What a runtime really does with a pipeline: what to plan with when the schedule is to run there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppopt.pipeline.parts import PipelineError

if TYPE_CHECKING:
    from ppopt.pipeline.mix import Mix
    from ppopt.pipeline.model import Pipeline

TORCH = "torch"
"""The runtime that makes something else of costs and memory: PyTorch."""
TORCHTITAN, MEGATRON, INTERLEAVED = "torchtitan", "megatron", "megatron-interleaved"
ONE_SHAPE = "PyTorch's pipelines exchange microbatches of one shape"
RUNTIMES = (TORCH, TORCHTITAN, MEGATRON, INTERLEAVED)
"""The runtimes that are planned for."""


class NotForTorch(ValueError):
    """A schedule that PyTorch's runtime cannot express; says which stage or rank stands in the way."""


def read_runtime(value: Any) -> str:
    """``pipeline.runtime``: empty, or the runtime that makes something else of the costs.

    Raises:
        PipelineError: it is neither.
    """
    if value not in ("", None, TORCH):
        raise PipelineError("pipeline.runtime", f'expected "{TORCH}", or nothing, got {value!r}')
    return value or ""


def check_shapes(mix: Mix, microbatches: int, stages: int) -> None:
    """Raise where microbatches that differ have several shapes, as far as that is known: where not as much is held of each.

    Where they only take different times, as with as many tokens in sequences of other lengths, a runtime of one shape runs them.

    Raises:
        PipelineError: PyTorch cannot run them; names the key.
    """
    if mix.pieces:
        problem = f'PyTorch\'s pipelines know of no pieces of a sequence; expected none (runtime "{TORCH}")'
        raise PipelineError("pipeline.pieces", problem)
    held = {tuple(by.held for by in mix.scales(m, stages)) for m in range(microbatches)}
    if len(held) < 2:
        return
    if mix.lengths:
        raise PipelineError("pipeline.lengths", f"{ONE_SHAPE}; expected as many tokens in each, or none for PyTorch")
    if mix.microbatch_activations:
        raise PipelineError("pipeline.microbatch_activations", f"{ONE_SHAPE}; expected equal factors for PyTorch")
    problem = f"{ONE_SHAPE}, and without microbatch_activations as much is held as these say; expected equal ones of these"
    raise PipelineError("pipeline.microbatch_costs", f"{problem} for PyTorch")


def check_routes(pipeline: Pipeline) -> None:
    """Raise where a runtime that a pipeline is for has no such routes, or no such operations.

    Raises:
        PipelineError: PyTorch has every stage on one rank, and every weight gradient in one piece.
    """
    pieces = pipeline.costs.weight_pieces
    if pipeline.runtime == TORCH and pieces > 1:
        problem = f'PyTorch runs a weight gradient as a whole (pipeline.runtime = "{TORCH}"); expected 1, got {pieces}'
        raise PipelineError("costs.weight_pieces", problem)
    if pipeline.runtime == TORCH and len(pipeline.ways) > 1:
        problem = f"PyTorch has one rank for each stage; {len(pipeline.ways)} routes have copies of it on several"
        raise PipelineError("pipeline.routes", problem)


def as_run(pipeline: Pipeline, runtime: str) -> Pipeline:
    """The pipeline with the costs that it has on ``runtime``, one of :data:`RUNTIMES`: those of PyTorch are others.

    Raises:
        NotForTorch: PyTorch cannot express it.
    """
    return as_torch_runs(pipeline) if runtime in (TORCH, TORCHTITAN) else pipeline


def as_torch_runs(pipeline: Pipeline) -> Pipeline:
    """The pipeline as PyTorch really runs it: what to plan with when the schedule is exported.

    Stage 0 needs no gradient of its input: PyTorch runs nothing in its ``I`` and the full backward in its ``W``. A split backward
    keeps the whole activation until ``W``, and so it does what ``I`` makes again where a stage recomputes or retains more than it
    holds (stage 0 makes that in ``W``, as ``B`` does). What is given stays as it is, and ``runtime`` says so. (The last stage's
    forwards in order cost nothing: microbatches of one shape can be renumbered.)

    Raises:
        NotForTorch: a stage lives on two ranks.
    """
    if len(pipeline.ways) > 1 and isinstance(pipeline.microbatches, tuple):
        one_route(pipeline.changed(microbatches=pipeline.microbatches[0]))
    elif pipeline.routes:
        pipeline = one_route(pipeline)
    return pipeline.changed(runtime=TORCH, route_of_microbatch=pipeline.route_of_microbatch)


def one_route(pipeline: Pipeline) -> Pipeline:
    """The pipeline with the one route that its microbatches take.

    Raises:
        NotForTorch: a stage, its backward or its weights live on two ranks.
    """
    for route, backs in zip(pipeline.routes, pipeline.backward_routes, strict=False):
        for stage, (on, back) in enumerate(zip(route, backs, strict=True)):
            if on != back:
                problem = f"stage {stage} runs forward on rank {on} and backward on rank {back}"
                raise NotForTorch(f"{problem}; PyTorch can express one rank for both only")
    for route, kept in zip(pipeline.routes, pipeline.memory.weights_on or (), strict=False):
        for stage, (on, home) in enumerate(zip(route, kept, strict=True)):
            if on != home:
                problem = f"stage {stage} runs on rank {on}, and its weights live on rank {home}"
                raise NotForTorch(f"{problem}; a schedule of PyTorch has no fetches, and keeps weights where they are used")
    pieces = pipeline.costs.weight_pieces
    if pieces > 1:
        problem = f"weight gradients come in {pieces} pieces, between which others may run (costs.weight_pieces)"
        raise NotForTorch(f"{problem}; PyTorch runs each as a whole")
    if pipeline.mix.differs:
        try:
            check_shapes(pipeline.mix, pipeline.microbatches, pipeline.stages)
        except PipelineError as error:
            raise NotForTorch(f"microbatches differ: {error}") from error
    used = sorted({pipeline.routes[route] for route in pipeline.route_of_microbatch})
    for stage, ranks in enumerate(zip(*used, strict=True)):
        if len(set(ranks)) > 1:
            places = " and ".join(map(str, sorted(set(ranks))))
            raise NotForTorch(
                f"stage {stage} lives on ranks {places}; PyTorch can express one rank per stage only "
                "(of the schedules with two directions, dualpipe-v is the one that it runs)"
            )
    return pipeline if len(pipeline.ways) == 1 else pipeline.changed(routes=(used[0],))
