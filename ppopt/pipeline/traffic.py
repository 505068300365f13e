"""Data-parallel traffic: what is given, and what each device exchanges for each of its stages."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from ppopt.pipeline.parts import Given, PipelineError, Value, optional_values
from ppopt.pipeline.tables import entry, once_each

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline


@dataclass(frozen=True)
class DataParallel:
    """What a device exchanges with its copies in other pipelines, once per step.

    With ``per="device"`` a number is what a device exchanges for all its stages, of all routes (each has an equal part); with
    ``per="stage"`` it is what it exchanges for one. ``all_gather`` is over before the device's first operation starts;
    ``reduce_scatter`` begins when its last one has ended. With ``overlap`` both are made stage by stage, beside what the device
    computes: it gathers its stages one after the other in ascending order, and a stage's operations wait for that stage only; it
    scatters them one after the other in descending order, each once the stage's last operation has ended. Both are part of the
    makespan and of the device's span. The network that they use is no link of the pipeline.

    With ``per_pass`` a stage is exchanged once per pass, not once per step. A pass is what a device runs of one stage before it
    turns to another one in the same direction: forwards; backwards (``B``, ``I``); gradients of weights (``B``, ``W``). Between
    two passes of a direction the weights of the next one are gathered, or the gradients of the last one scattered, beside what
    the device computes in the other directions.
    """

    all_gather: Value = Fraction(0)
    reduce_scatter: Value = Fraction(0)
    overlap: bool = False
    per: Literal["device", "stage"] = "device"
    per_pass: bool = False

    if TYPE_CHECKING:

        def __init__(
            self,
            all_gather: Given = 0,
            reduce_scatter: Given = 0,
            overlap: bool = False,
            per: Literal["device", "stage"] = "device",
            per_pass: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.per not in ("device", "stage"):
            raise PipelineError("data_parallel.per", f'expected "device" or "stage", got {self.per!r}')
        for name in ("overlap", "per_pass"):
            if not isinstance(getattr(self, name), bool):
                raise PipelineError(f"data_parallel.{name}", f"expected true or false, got {getattr(self, name)!r}")
        if self.overlap and self.per_pass:
            problem = "every pass is exchanged beside the other directions anyway, and none ahead; expected false, got true"
            raise PipelineError("data_parallel.overlap", f"with per_pass {problem}")
        for name in ("all_gather", "reduce_scatter"):
            value = optional_values(f"data_parallel.{name}", getattr(self, name))
            object.__setattr__(self, name, Fraction(0) if value is None else value)


def both(pipeline: Pipeline) -> tuple[Value, Value]:
    """The all-gather and the reduce-scatter, as they are given."""
    return pipeline.data_parallel.all_gather, pipeline.data_parallel.reduce_scatter


def stages_of_devices(pipeline: Pipeline) -> list[list[int]]:
    """``[device]``: the stages that it holds for some route, ascending."""
    different = set(pipeline.routes)
    return [sorted({s for route in different for s, d in enumerate(route) if d == device}) for device in range(pipeline.devices)]


def exchanged(pipeline: Pipeline, value: Value) -> list[dict[int, Fraction]]:
    """``[device]``: by each stage that the device holds for some route, the time that it takes to exchange it."""
    stages_of = stages_of_devices(pipeline)
    if pipeline.data_parallel.per == "stage":
        return [{s: entry(value, s) for s in stages} for stages in stages_of]
    return [{s: entry(value, device) / len(stages) for s in stages} for device, stages in enumerate(stages_of)]


def of_stages(pipeline: Pipeline, value: Value) -> list[list[Fraction]]:
    """``[route][stage]``: what the stage's device exchanges for this stage alone."""
    parts = exchanged(pipeline, value)
    return once_each(lambda route: [parts[device][stage] for stage, device in enumerate(route)], pipeline.routes)


def from_stage_down(pipeline: Pipeline, value: Value) -> list[list[Fraction]]:
    """``[route][stage]``: what the stage's device exchanges for this and earlier stages; for all of them without overlap, and
    for this one alone where that is done pass by pass."""
    parts = exchanged(pipeline, value)
    overlap = pipeline.data_parallel.overlap
    if pipeline.data_parallel.per_pass:
        return of_stages(pipeline, value)

    def row(route: tuple[int, ...]) -> list[Fraction]:
        return [
            sum((part for other, part in parts[device].items() if other <= stage or not overlap), Fraction(0))
            for stage, device in enumerate(route)
        ]

    return once_each(row, pipeline.routes)
