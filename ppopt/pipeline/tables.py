"""Costs and memory of a pipeline as exact tables ``[route][stage]``, where they may be given per device or per stage.

An entry is what one operation of the stage takes, or what one microbatch holds there. ``None``: no such value is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ppopt.pipeline.parts import QUADRATIC, Value
from ppopt.pipeline.runtimes import TORCH

if TYPE_CHECKING:
    from ppopt.pipeline.arrays import IntArray
    from ppopt.pipeline.model import Pipeline

_AGAIN = {
    "backward": "recompute",
    "backward_input": "recompute",
    "backward_quadratic": "recompute_quadratic",
    "backward_input_quadratic": "recompute_quadratic",
}
"""By duration the one by which it is longer where a stage recomputes."""
Rows: TypeAlias = Sequence[Sequence[Fraction | None]]


def entry(value: Value, index: int) -> Fraction:
    """The value of one device or stage."""
    return value[index] if isinstance(value, tuple) else value


def by_stage(pipeline: Pipeline, value: Value | None, backward: bool = False) -> list[list[Fraction | None]]:
    """``[route][stage]``: the stage's part of a value that is given per device or per stage (``costs.per``).

    The value is that of the device that runs the forward, or the ``backward``; the part is that of the forward's device.
    """
    table: list[list[Fraction | None]] = []
    runs = pipeline.backward_routes if backward and pipeline.backward_routes else pipeline.routes
    for route, on in zip(pipeline.routes, runs, strict=True):
        if value is None:
            table.append([None] * pipeline.stages)
        elif pipeline.costs.per == "stage":
            table.append([entry(value, s) for s in range(pipeline.stages)])
        else:
            chunks = np.bincount(route, minlength=pipeline.devices)
            table.append([entry(value, other) / int(chunks[d]) for d, other in zip(route, on, strict=True)])
    return table


def if_recomputing(pipeline: Pipeline, value: Value | None, backward: bool = False) -> list[list[Fraction]]:
    """``[route][stage]``: the stage's part of a value where the stage recomputes, else 0."""
    chosen = pipeline.recomputing
    table = by_stage(pipeline, value, backward)
    return [[x if x is not None and s in chosen else Fraction(0) for s, x in enumerate(row)] for row in table]


def durations(pipeline: Pipeline, name: str) -> list[list[Fraction | None]]:
    """``[route][stage]``: a duration of :class:`~ppopt.pipeline.Costs`, with the time that the stages take to recompute."""
    value, again = getattr(pipeline.costs, name), _AGAIN.get(name)
    more = None if again is None else getattr(pipeline.costs, again)
    if value is None and more is not None and name in QUADRATIC:
        value = Fraction(0)
    table = by_stage(pipeline, value, name.startswith("backward"))
    return table if again is None else added(table, if_recomputing(pipeline, more, True))


def held(pipeline: Pipeline) -> tuple[list[list[Fraction]], list[list[Fraction]]]:
    """``[route][stage]``: what is held from F to the backward; and what is retained between I and W, which may be more.

    PyTorch retains everything, also what it makes again in I; the first stage makes that in W, as a fused backward does.
    """
    memory = pipeline.memory
    saved = if_recomputing(pipeline, memory.recompute_saved)
    activation, retained = by_stage(pipeline, memory.activation), by_stage(pipeline, memory.retained)
    holds, keeps = [], []
    for whole, kept, less in zip(activation, retained, saved, strict=True):
        holds.append([a - x for a, x in zip(whole, less, strict=True) if a is not None])
        keeps.append([h if r is None else r for r, h in zip(kept, holds[-1], strict=True)])
        if pipeline.runtime == TORCH:
            most = [max(a or h, h, r) for a, h, r in zip(whole, holds[-1], keeps[-1], strict=True)]
            keeps[-1] = [holds[-1][0], *most[1:]]
    return holds, keeps


def totals(pipeline: Pipeline, table: Rows) -> list[Fraction] | None:
    """``[device]``: the sum of ``table[route][stage]`` over the device's stages and microbatches; ``None``: some is missing."""
    sums = [Fraction(0)] * pipeline.devices
    for route, microbatches, row in zip(pipeline.routes, pipeline.microbatches_of, table, strict=True):
        for device, value in zip(route, row, strict=True):
            if value is None:
                return None
            sums[device] += value * len(microbatches)
    return sums


def added(table: Rows, other: Rows) -> list[list[Fraction | None]]:
    """The sum of two tables; ``None`` where one of them has none."""
    return [
        [None if a is None or b is None else a + b for a, b in zip(*rows, strict=True)] for rows in zip(table, other, strict=True)
    ]


def common_denominator(rows: Rows) -> int:
    """The smallest number by which all entries become integers."""
    return math.lcm(*(value.denominator for row in rows for value in row if value is not None))


def largest(rows: Rows) -> Fraction:
    """The largest entry."""
    return max(value for row in rows for value in row if value is not None)


def most_scaled(rows: Rows, per_unit: int) -> int:
    """The largest entry times ``per_unit``, as in :func:`scaled`."""
    return max(_times(value, per_unit) for row in rows for value in row if value is not None)


def _times(value: Fraction, per_unit: int) -> int:
    """``value * per_unit``, which is an integer >= 0: without a fraction in between, which takes ten times as long."""
    return value.numerator * per_unit // value.denominator


def scaled(rows: Rows, per_unit: int) -> IntArray:
    """The entries times ``per_unit``, which makes them integers; -1 for ``None``."""
    return np.array([[-1 if value is None else _times(value, per_unit) for value in row] for row in rows], dtype=np.int64)
