"""What a runtime really does with a pipeline: what to plan with when the schedule is to run there."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from ppopt.pipeline.model import Pipeline
from ppopt.pipeline.parts import Value

RUNTIMES = ("torch",)
"""The runtimes that are known here."""


class NotForTorch(ValueError):
    """A schedule that PyTorch's runtime cannot express; says which stage or rank stands in the way."""


def as_run(pipeline: Pipeline, runtime: str) -> Pipeline:
    """The pipeline as ``runtime``, one of :data:`RUNTIMES`, really runs it (:func:`as_torch_runs`).

    Raises:
        NotForTorch: PyTorch cannot express it.
        PipelineError: which stages recompute is left open.
    """
    return {"torch": as_torch_runs}[runtime](pipeline)


def as_torch_runs(pipeline: Pipeline) -> Pipeline:
    """The pipeline as PyTorch really runs it: what to plan with when the schedule is exported.

    Stage 0 needs no gradient of its input: PyTorch runs nothing in its ``I`` and the full backward in its ``W``. A split backward
    keeps the whole activation until ``W``, and so it does what ``I`` makes again where a stage recomputes or retains more than it
    holds (stage 0 makes that in ``W``, as ``B`` does). Costs and activations become per stage. (The last stage's forwards in
    order cost nothing: microbatches are alike and can be renumbered.)

    Raises:
        NotForTorch: a stage lives on two ranks.
    """
    whole = one_route(pipeline).per_stage()
    pipeline = whole.written_out()
    costs, memory = pipeline.costs, pipeline.memory

    def by_stage(value: Value | None) -> tuple[Fraction, ...] | None:
        return value if value is None or isinstance(value, tuple) else (value,) * pipeline.stages

    values = {
        name: by_stage(getattr(costs, name)) for name in ("forward", "backward_input", "backward_weight", "backward", "overlap")
    }
    input_, weight, full = values["backward_input"], values["backward_weight"], values["backward"]
    if input_ is not None and weight is not None:
        values["backward_input"] = (Fraction(0), *input_[1:])
        values["backward_weight"] = (full[0] if full is not None else input_[0] + weight[0], *weight[1:])
    held = by_stage(memory.activation) or (Fraction(0),) * pipeline.stages
    made = (by_stage(value) or held for value in (whole.memory.activation, memory.retained))
    retained = (held[0], *(max(amounts) for amounts in list(zip(held, *made, strict=True))[1:]))
    return pipeline.changed(
        costs=dataclasses.replace(costs, per="stage", **values),  # type: ignore[arg-type]
        memory=dataclasses.replace(memory, activation=held, retained=None if retained == held else retained),
    )


def one_route(pipeline: Pipeline) -> Pipeline:
    """The pipeline with the one route that its microbatches take.

    Raises:
        NotForTorch: a stage lives on two ranks.
    """
    used = sorted({pipeline.routes[route] for route in pipeline.route_of_microbatch})
    for stage, ranks in enumerate(zip(*used, strict=True)):
        if len(set(ranks)) > 1:
            places = " and ".join(map(str, sorted(set(ranks))))
            raise NotForTorch(
                f"stage {stage} lives on ranks {places}; PyTorch can express one rank per stage only "
                "(of the schedules with two directions, dualpipe-v is the one that it runs)"
            )
    return pipeline if len(pipeline.routes) == 1 else pipeline.changed(routes=(used[0],))
