"""The memory of a pipeline as integers."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from ppopt.pipeline.arrays import IntArray
from ppopt.pipeline.cutting import weights_of
from ppopt.pipeline.parts import PipelineError, plain
from ppopt.pipeline.tables import Rows, common_denominator, entry, held, largest, scaled

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline


class Amounts(NamedTuple):
    """All amounts of memory of a pipeline as integers: ``amount = memory * per_unit``."""

    per_unit: int
    activation: IntArray
    """``[route, stage]``."""
    retained: IntArray
    """``[route, stage]``."""
    static: IntArray
    """``[device]``, all copies together, and the weights of layers."""
    limit: IntArray | None
    """``[device]``, or ``None``: unlimited."""


def amounts_of(pipeline: Pipeline) -> Amounts:
    """The memory of a pipeline that has routes.

    Raises:
        PipelineError: the common unit is too fine for 64-bit integers, or which stages recompute is left open.
    """
    memory, devices = pipeline.memory, range(pipeline.devices)
    activation, retained = held(pipeline)
    weights = weights_of(pipeline)
    static = [entry(memory.static, device) * copies(pipeline, device) + weights[device] for device in devices]
    limit = None if memory.limit is None else [entry(memory.limit, device) for device in devices]
    tables: Rows = [*activation, *retained, static, limit or []]
    per_unit = common_denominator(tables)
    if largest(tables) * per_unit * pipeline.stages * pipeline.microbatches >= 2**62:
        raise PipelineError("memory", "the amounts have no common unit that is coarse enough; give them with fewer digits")
    return Amounts(
        per_unit,
        activation=scaled(activation, per_unit),
        retained=scaled(retained, per_unit),
        static=scaled([static], per_unit)[0],
        limit=None if limit is None else scaled([limit], per_unit)[0],
    )


def copies(pipeline: Pipeline, device: int) -> Fraction:
    """The number of copies of its weights on a device: its stages over all routes / most of its stages on one route."""
    stages = [{s for s in range(pipeline.stages) if route[s] == device} for route in pipeline.routes]
    return Fraction(len(set().union(*stages)), max(map(len, stages)))


def check_limit(pipeline: Pipeline) -> None:
    """Raise where a device cannot hold its static memory and one microbatch's activations.

    Raises:
        PipelineError: a device cannot; the message names it and what it needs.
    """
    amounts = pipeline.amounts
    if amounts.limit is None:
        return
    for device, limit in enumerate(amounts.limit.tolist()):
        least = max(
            sum(int(amounts.activation[r, s]) for s in range(pipeline.stages) if route[s] == device)
            for r, route in enumerate(pipeline.routes)
            if r in pipeline.route_of_microbatch
        ) + int(amounts.static[device])
        if least > limit:
            raise PipelineError(
                f"memory.limit[{device}]" if isinstance(pipeline.memory.limit, tuple) else "memory.limit",
                f"device {device} needs at least {plain(Fraction(least, amounts.per_unit))} (its static memory and one "
                f"microbatch's activations), got {plain(Fraction(limit, amounts.per_unit))}",
            )
