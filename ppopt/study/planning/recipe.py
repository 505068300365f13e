"""A recipe that somebody has written, on the pipeline of its sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ppopt.layouts import cut_of, is_layout
from ppopt.named import Restriction, UnknownSchedule, find
from ppopt.named.recomputing import best_of
from ppopt.pipeline import CHOOSE, PipelineError
from ppopt.study.planning.looks import Found
from ppopt.study.planning.question import Question, Recipe
from ppopt.study.planning.result import Plan
from ppopt.study.planning.space import Case, Combination
from ppopt.transformer import EstimateError, Parallel


def timed(question: Question, recipe: Recipe) -> tuple[Plan | None, str | None]:
    """The recipe as a plan, or why there is none: its sizes, its memory, or what its schedule does not allow.

    Raises:
        EstimateError: its partition, what recomputes or its schedule cannot be.
    """
    try:
        case = _case(question, recipe)
    except EstimateError as error:
        return None, str(error)
    placement = recipe.placement or ("loop" if recipe.chunks > 1 else "linear")
    partition = recipe.partition
    try:
        if is_layout(partition):
            partition = cut_of(partition, case.layers, case.combination.parallel.pipeline).counts
        pipeline = case.pipeline(placement, recipe.chunks, partition=partition, recompute=recipe.recompute)
        definition = find(recipe.schedule or ("interleaved-1f1b" if recipe.chunks > 1 else "1f1b"))
        if pipeline.recompute == CHOOSE:
            schedule = best_of(definition, pipeline, recipe.chunks, {}, "makespan")
        else:
            schedule = definition.schedule(pipeline, recipe.chunks)
    except PipelineError as error:
        if error.key.startswith("memory."):
            return None, str(error)
        raise EstimateError(error.key.replace("pipeline.", "recipe.", 1), error.message) from None
    except UnknownSchedule as error:
        raise EstimateError("recipe.schedule", str(error)) from None
    except Restriction as error:
        return None, str(error)
    if not schedule.within_memory:
        peak, limit = max(schedule.peak_memory), case.memory.limit
        worst = schedule.peak_memory.index(peak)
        return None, f"device {worst} holds {float(pipeline.amount(peak)):.4g} GB of {float(limit or 0):.4g} GB"  # type: ignore[arg-type]
    return Plan(case, Found(definition.name, schedule), case.floors.least / 1000, "closed form"), None


def _case(question: Question, recipe: Recipe) -> Case:
    sizes: dict[str, Any] = dict(recipe.sizes)
    cluster = question.clusters[-1]
    if "data" not in sizes:
        used = Parallel(**{**sizes, "data": 1, "expert": 1, "expert_tensor": None}).gpus
        if (cluster.gpus or 1) % used:
            raise EstimateError(
                "recipe.data", f"tensor x pipeline x context is {used}, which does not divide {cluster.gpus} GPUs"
            )
        sizes["data"] = (cluster.gpus or 1) // used
    sizes.setdefault("zero", max(question.zero))
    parallel = Parallel(**sizes, sequence_parallel=question.sequence_parallel)
    if parallel.gpus > (cluster.gpus or 1):
        raise EstimateError("recipe", f"its sizes take {parallel.gpus} GPUs; there are {cluster.gpus}")
    if not isinstance(recipe.recompute, str):
        question = replace(question, training=replace(question.training, recompute="choose"))
    else:
        question = replace(question, training=replace(question.training, recompute=recipe.recompute))
    return Case.of(question, Combination(cluster, parallel, recipe.microbatch))
