"""Data-parallel traffic of a pipeline: what each device exchanges for each of its stages."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from ppopt.pipeline.parts import Value
from ppopt.pipeline.tables import entry

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline


def both(pipeline: Pipeline) -> tuple[Value, Value]:
    """The all-gather and the reduce-scatter, as they are given."""
    return pipeline.data_parallel.all_gather, pipeline.data_parallel.reduce_scatter


def exchanged(pipeline: Pipeline, value: Value) -> list[dict[int, Fraction]]:
    """``[device]``: by each stage that the device holds for some route, the time that it takes to exchange it."""
    devices = range(pipeline.devices)
    stages_of = [sorted({s for route in pipeline.routes for s, d in enumerate(route) if d == device}) for device in devices]
    if pipeline.data_parallel.per == "stage":
        return [{s: entry(value, s) for s in stages} for stages in stages_of]
    return [{s: entry(value, device) / len(stages) for s in stages} for device, stages in enumerate(stages_of)]


def of_stages(pipeline: Pipeline, value: Value) -> list[list[Fraction]]:
    """``[route][stage]``: what the stage's device exchanges for this stage alone."""
    parts = exchanged(pipeline, value)
    return [[parts[device][stage] for stage, device in enumerate(route)] for route in pipeline.routes]


def from_stage_down(pipeline: Pipeline, value: Value) -> list[list[Fraction]]:
    """``[route][stage]``: what the stage's device exchanges for this and earlier stages; for all of them without overlap, and
    for this one alone where that is done pass by pass."""
    parts = exchanged(pipeline, value)
    overlap = pipeline.data_parallel.overlap
    if pipeline.data_parallel.per_pass:
        return of_stages(pipeline, value)
    return [
        [
            sum((part for other, part in parts[device].items() if other <= stage or not overlap), Fraction(0))
            for stage, device in enumerate(route)
        ]
        for route in pipeline.routes
    ]
