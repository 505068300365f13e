"""The same pipeline written in another way: with costs per stage, or with recomputing as part of the costs."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ppopt.pipeline.offload import moving, with_values
from ppopt.pipeline.parts import DURATIONS, PipelineError, Value
from ppopt.pipeline.tables import by_stage, durations, held

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline


def per_stage(pipeline: Pipeline) -> Pipeline:
    """The pipeline with costs and activations per stage.

    Raises:
        PipelineError: a stage has other costs on another route, which cannot be said per stage.
    """
    if pipeline.costs.per == "stage":
        return pipeline

    def listed(key: str, value: Value | None) -> tuple[Fraction | None, ...] | None:
        rows = by_stage(pipeline, value, key.startswith("costs.backward") or key == "costs.recompute")
        if any(row != rows[0] for row in rows):
            problem = "the routes have different values for a stage; recompute of some stages needs equal ones"
            raise PipelineError(key, problem)
        return None if value is None else tuple(rows[0])

    parts = ("activation", "retained", "recompute_saved")
    costs: dict[str, Any] = {name: listed(f"costs.{name}", getattr(pipeline.costs, name)) for name in DURATIONS}
    memory: dict[str, Any] = {name: listed(f"memory.{name}", getattr(pipeline.memory, name)) for name in parts}
    offload = pipeline.offload and with_values(pipeline.offload, listed)
    return _with(pipeline, costs={"per": "stage", **costs}, memory=memory, offload=offload)


def written_out(pipeline: Pipeline) -> Pipeline:
    """The pipeline where no stage recomputes, with the same durations and amounts.

    Raises:
        PipelineError: as :func:`per_stage`, if stages recompute; or which do is left open.
    """
    if pipeline.recompute == "none":
        return _with(pipeline, costs={"recompute": None, "recompute_quadratic": None}, memory={"recompute_saved": None})
    each = per_stage(pipeline)
    activation, retained = held(each)
    longer: dict[str, Any] = {
        name: tuple(durations(each, name)[0]) for name in ("backward_input", "backward") if getattr(each.costs, name) is not None
    }
    if each.costs.recompute_quadratic is not None:
        longer |= {f"{name}_quadratic": tuple(durations(each, f"{name}_quadratic")[0]) for name in list(longer)}
    memory = {"activation": tuple(activation[0]), "retained": tuple(retained[0]), "recompute_saved": None}
    return _with(each, costs={"recompute": None, "recompute_quadratic": None, **longer}, memory=memory, recompute="none")


def working_once(pipeline: Pipeline) -> Pipeline:
    """The pipeline where nothing recomputes, and memory is unlimited."""
    return _with(pipeline, costs={}, memory={"limit": None}, recompute="none")


def unlimited(pipeline: Pipeline) -> Pipeline:
    """The pipeline where nothing is copied to the host, and memory is unlimited."""
    return _with(pipeline, costs={}, memory={"limit": None}, offload=None)


def undivided(pipeline: Pipeline) -> Pipeline:
    """The pipeline with whole weight gradients, the very same where they are."""
    if pipeline.costs.weight_pieces == 1:
        return pipeline
    return _with(pipeline, costs={"weight_pieces": 1}, memory={})


def kept_here(pipeline: Pipeline) -> Pipeline:
    """The pipeline where nothing is copied to the host; without a limit of memory where a microbatch does not fit then."""
    try:
        return _with(pipeline, costs={}, memory={}, offload=None)
    except PipelineError:
        return unlimited(pipeline)


def never_copied(pipeline: Pipeline) -> Pipeline:
    """A pipeline without copies to the host that asks for nothing which the given one with them does not ask for.

    What may be away at some time is never held here at all: at any time a schedule with copies holds what it holds here, or more.
    Of a stage's routes the one counts of which most may be away. Where they hold different amounts, memory is unlimited.
    """
    if pipeline.offload is None:
        return pipeline
    try:
        each = written_out(per_stage(pipeline.flat()))
    except PipelineError:
        return unlimited(pipeline)
    (activation, *others), (retained, *_) = held(each)
    if any(row != activation for row in others):
        return unlimited(pipeline)
    away = [max(of_stage) for of_stage in zip(*moving(each), strict=True)]
    stays = tuple(whole - part for whole, part in zip(activation, away, strict=True))
    keeps = tuple(map(min, stays, retained))
    return _with(each, costs={}, memory={"activation": stays, "retained": keeps}, offload=None)


def _with(pipeline: Pipeline, *, costs: dict[str, Any], memory: dict[str, Any], **changes: Any) -> Pipeline:
    """The pipeline with other costs, memory and fields, its microbatches on the same routes."""
    return pipeline.changed(
        costs=dataclasses.replace(pipeline.costs, **costs),
        memory=dataclasses.replace(pipeline.memory, **memory),
        route_of_microbatch=pipeline.route_of_microbatch,
        **changes,
    )
