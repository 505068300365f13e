"""A pipeline of fewer devices that is like a given one: what is good for the one is much the same for the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

from ppopt.pipeline.model import Pipeline
from ppopt.pipeline.parts import DURATIONS, PipelineError, Value
from ppopt.pipeline.traffic import DataParallel

_Entry = TypeVar("_Entry")


def fewer_devices(pipeline: Pipeline, devices: int) -> Pipeline:
    """The same placement on ``devices`` devices. Each device and stage is like the one at its place in ``pipeline``.

    Beside its static memory and what a backward takes while it runs, a device has a part of the other's memory, as the number of
    devices is a part of theirs. What stages recompute is part of the costs, and links are there for latencies alone. Nothing is
    exchanged with other pipelines, nothing is copied to the host, and there is no optimizer step.

    Of what is fetched nothing is said there: weights live where they are used.

    Raises:
        PipelineError: the routes are written out, or so little memory does not hold a microbatch.
    """
    if pipeline.placement == "routes":
        raise PipelineError("pipeline.routes", "routes that are written out have no placement on fewer devices")
    pipeline = pipeline.written_out()
    stages = pipeline.stages * devices // pipeline.devices
    length = stages if pipeline.costs.per == "stage" else devices
    links, memory = dataclasses.replace(pipeline.links.uncontended(), weights=None), pipeline.memory
    share = Fraction(devices, pipeline.devices)
    if isinstance(links.latency, tuple):
        links = dataclasses.replace(links, latency=_some([_some(row, devices) for row in links.latency], devices))
    limit = None
    if memory.limit is not None:
        given = memory.static, memory.working or Fraction(0), memory.limit
        static, working, whole = (_each(value, pipeline.devices) for value in given)
        beside = [own + while_it_runs for own, while_it_runs in zip(static, working, strict=True)]
        limit = _some([fixed + (most - fixed) * share for fixed, most in zip(beside, whole, strict=True)], devices)
    durations = {name: getattr(pipeline.costs, name) for name in DURATIONS}
    durations = {name: None if value is None else _like(value, length) for name, value in durations.items()}
    return pipeline.changed(
        devices=devices,
        costs=dataclasses.replace(pipeline.costs, **durations, optimizer=None),
        links=links,
        memory=dataclasses.replace(
            memory,
            limit=limit,
            static=_like(memory.static, devices),
            weights=None if memory.weights is None else _like(memory.weights, stages),
            activation=_like(memory.activation, length),
            retained=None if memory.retained is None else _like(memory.retained, length),
            working=None if memory.working is None else _like(memory.working, devices),
        ),
        data_parallel=DataParallel(),
        offload=None,
    )


def _like(value: Value, length: int) -> Value:
    return _some(value, length) if isinstance(value, tuple) else value


def _each(value: Value, length: int) -> Sequence[Fraction]:
    return value if isinstance(value, tuple) else (value,) * length


def _some(values: Sequence[_Entry], length: int) -> tuple[_Entry, ...]:
    """``length`` of the values, evenly spread."""
    return tuple(values[(2 * place + 1) * len(values) // (2 * length)] for place in range(length))
