"""Costs and memory of a pipeline as exact tables ``[route][stage]``, where they may be given per device or per stage.

An entry is what one operation of the stage takes, or what one microbatch holds there. ``None``: no such value is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

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
Held: TypeAlias = tuple[list[Fraction], list[Fraction]]
"""What is held of a microbatch until its backward, and what is retained between ``I`` and ``W``, stage by stage."""
Entry = TypeVar("Entry", Fraction, Fraction | None)
"""What a table has; ``None``: nothing."""
Worked = TypeVar("Worked")
"""What is worked out of some values."""


def entry(value: Value, index: int) -> Fraction:
    """The value of one device or stage."""
    return value[index] if isinstance(value, tuple) else value


def by_stage(pipeline: Pipeline, value: Value | None, backward: bool = False) -> list[list[Fraction | None]]:
    """``[route][stage]``: the stage's part of a value that is given per device or per stage (``costs.per``).

    The value is that of the device that runs the forward, or the ``backward``; the part is that of the forward's device.
    """

    def part(route: tuple[int, ...], on: tuple[int, ...]) -> list[Fraction | None]:
        if value is None:
            return [None] * pipeline.stages
        if pipeline.costs.per == "stage":
            return [entry(value, s) for s in range(pipeline.stages)]
        chunks = np.bincount(route, minlength=pipeline.devices)
        return [entry(value, other) / int(chunks[d]) for d, other in zip(route, on, strict=True)]

    runs = pipeline.backward_routes if backward and pipeline.backward_routes else pipeline.routes
    return once_each(part, pipeline.routes, runs)


def once_each(of: Callable[..., Worked], *columns: Sequence[Any]) -> list[Worked]:
    """``of`` what the columns have in each place; worked out once where these are the same objects, so nobody changes them.

    The columns are tables with a row for each route: those of microbatches that differ are the same object in whatever does not
    depend on these. Or they are rows with an entry for each stage.
    """
    known: dict[tuple[int, ...], Worked] = {}
    found = []
    for values in zip(*columns, strict=True):
        key = tuple(map(id, values))
        if key not in known:
            known[key] = of(*values)
        found.append(known[key])
    return found


def one_object_each(table: Sequence[Sequence[Entry]]) -> list[list[Entry]]:
    """The table with one object for equal values, so that what follows from them can be worked out once."""
    known: dict[tuple[int, int], Entry] = {}

    def row(given: Sequence[Entry]) -> list[Entry]:
        return [x if x is None else known.setdefault((x.numerator, x.denominator), x) for x in given]

    return once_each(row, table)


def if_recomputing(pipeline: Pipeline, value: Value | None, backward: bool = False) -> list[list[Fraction]]:
    """``[route][stage]``: the stage's part of a value where the stage recomputes, else 0."""
    chosen = pipeline.recomputing

    def part(row: Sequence[Fraction | None]) -> list[Fraction]:
        return [x if x is not None and s in chosen else Fraction(0) for s, x in enumerate(row)]

    return once_each(part, by_stage(pipeline, value, backward))


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

    def row(whole: Sequence[Fraction | None], kept: Sequence[Fraction | None], less: Sequence[Fraction]) -> Held:
        holds = [a - x for a, x in zip(whole, less, strict=True) if a is not None]
        keeps = [h if r is None else r for r, h in zip(kept, holds, strict=True)]
        if pipeline.runtime == TORCH:
            most = [max(a or h, h, r) for a, h, r in zip(whole, holds, keeps, strict=True)]
            keeps = [holds[0], *most[1:]]
        return holds, keeps

    each = once_each(row, activation, retained, saved)
    return [holds for holds, _ in each], [keeps for _, keeps in each]


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

    def row(one: Sequence[Fraction | None], more: Sequence[Fraction | None]) -> list[Fraction | None]:
        return [None if a is None or b is None else a + b for a, b in zip(one, more, strict=True)]

    return once_each(row, table, other)


def common_denominator(rows: Rows) -> int:
    """The smallest number by which all entries become integers."""
    return math.lcm(*{value.denominator for row in _different(rows) for value in row if value is not None})


def largest(rows: Rows) -> Fraction:
    """The largest entry."""
    return max(value for row in rows for value in row if value is not None)


def most_scaled(rows: Rows, per_unit: int) -> int:
    """The largest entry times ``per_unit``, as in :func:`scaled`."""
    entries = _different(value for row in _different(rows) for value in row)
    return max(_times(value, per_unit) for value in entries if value is not None)


def _times(value: Fraction, per_unit: int) -> int:
    """``value * per_unit``, which is an integer >= 0: without a fraction in between, which takes ten times as long."""
    return value.numerator * per_unit // value.denominator


def scaled(rows: Rows, per_unit: int) -> IntArray:
    """The entries times ``per_unit``, which makes them integers; -1 for ``None``."""

    def times(value: Fraction | None) -> int:
        return -1 if value is None else _times(value, per_unit)

    return np.array(once_each(partial(once_each, times), rows), dtype=np.int64)


def _different(values: Iterable[Worked]) -> Iterable[Worked]:
    """Each object among these values of a table once."""
    return {id(value): value for value in values}.values()
