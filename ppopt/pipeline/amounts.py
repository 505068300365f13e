"""The memory of a pipeline as integers."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.pipeline.arrays import IntArray
from ppopt.pipeline.cutting import weights_of
from ppopt.pipeline.mix_routes import groups_of, way_of_microbatch
from ppopt.pipeline.offload import least_held, moving
from ppopt.pipeline.parts import PipelineError, TooFine, TooLittleMemory, plain
from ppopt.pipeline.scaling import scaled_amounts, scaled_working
from ppopt.pipeline.tables import Rows, common_denominator, entry, held, most_scaled, scaled

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline

BoolArray: TypeAlias = npt.NDArray[np.bool_]


class Amounts(NamedTuple):
    """All amounts of memory of a pipeline as integers: ``amount = memory * per_unit``."""

    per_unit: int
    activation: IntArray
    """``[route, stage]``: what F takes."""
    retained: IntArray
    """``[route, stage]``: what is held between I and W."""
    static: IntArray
    """``[device]``, all copies together, and the weights of layers."""
    limit: IntArray | None
    """``[device]``, or ``None``: unlimited."""
    working: IntArray
    """``[route, device]``: what ``B``, ``I`` and ``W`` each take beside that, while they run."""
    away: IntArray
    """``[route, stage]``: what of the activation may be on the host between the copies; 0: none of it."""
    host: int | None
    """What all devices together may keep on the host; ``None``: unlimited."""

    @property
    def kept(self) -> IntArray:
        """``[route, stage]``: what of the activation is still held after I; I gives back the rest."""
        kept: IntArray = np.minimum(self.activation, self.retained)
        return kept

    @property
    def rebuilt(self) -> IntArray:
        """``[route, stage]``: what I takes at its start, more than F has taken. It is held until the end of W."""
        rebuilt: IntArray = np.maximum(self.retained - self.activation, 0)
        return rebuilt

    @property
    def room(self) -> IntArray:
        """``[device]``: the most that forwards and input gradients may have taken at any time, where there is a limit.

        It is what is left beside static memory and what one backward takes while it runs. That is all that ``working`` says where
        it is the same on all routes: nothing but a backward gives anything back, so that what is held at any time is still held
        when the device's next backward starts; and a device runs one operation at a time. Else it is what the least leaves, and
        :attr:`more_working` is taken besides.
        """
        assert self.limit is not None, "there is a limit"
        room: IntArray = self.limit - self.static - self.working.min(axis=0)
        return room

    @property
    def more_working(self) -> IntArray:
        """``[route, device]``: how much more a backward takes while it runs than the least of the device."""
        more: IntArray = self.working - self.working.min(axis=0)
        return more


def amounts_of(pipeline: Pipeline) -> Amounts:
    """The memory of a pipeline that has routes.

    Raises:
        TooFine: the common unit is too fine for 64-bit integers.
        PipelineError: which stages recompute is left open.
    """
    memory, devices = pipeline.memory, range(pipeline.devices)
    activation, retained = (scaled_amounts(pipeline, table) for table in held(pipeline))
    weights = weights_of(pipeline)
    static = [entry(memory.static, device) * copies(pipeline, device) + weights[device] for device in devices]
    limit = None if memory.limit is None else [entry(memory.limit, device) for device in devices]
    away = scaled_amounts(pipeline, moving(pipeline))
    host = None if pipeline.offload is None else pipeline.offload.host_limit
    working = scaled_working(pipeline, [entry(memory.working or Fraction(0), device) for device in devices])
    tables: Rows = [*activation, *retained, *working, static, limit or [], *away, [host]]
    per_unit = common_denominator(tables)
    if most_scaled(tables, per_unit) * pipeline.stages * pipeline.microbatches >= 2**62:
        raise TooFine("memory", "the amounts have no common unit that is coarse enough; give them with fewer digits")
    return Amounts(
        per_unit,
        activation=scaled(activation, per_unit),
        retained=scaled(retained, per_unit),
        static=scaled([static], per_unit)[0],
        limit=None if limit is None else scaled([limit], per_unit)[0],
        working=scaled(working, per_unit),
        away=scaled(away, per_unit),
        host=None if host is None else int(host * per_unit),
    )


def copies(pipeline: Pipeline, device: int) -> Fraction:
    """The number of copies of its weights on a device: its stages over all routes / most of its stages on one route; one where it
    runs backwards alone."""
    stages = [{s for s in range(pipeline.stages) if route[s] == device} for route in set(pipeline.routes)]
    most = max(map(len, stages))
    return Fraction(len(set().union(*stages)), most) if most else Fraction(1)


def splitting_takes_memory(pipeline: Pipeline) -> bool:
    """Whether some split backward takes more memory than a whole one, and memory is limited."""
    return pipeline.costs.split and pipeline.amounts.limit is not None and bool(pipeline.amounts.rebuilt.any())


def room_to_split(pipeline: Pipeline) -> BoolArray:
    """``[route, stage]``: whether the stage's ``I`` can run in any schedule within the limit.

    When it starts, its microbatch holds what the forwards of this stage and of the device's earlier ones have taken, since their
    backwards come later; and it takes what it rebuilds. With one microbatch at a time it is no more.
    """
    amounts = pipeline.amounts
    room = np.ones(pipeline.device_of.shape, dtype=np.bool_)
    if not splitting_takes_memory(pipeline) or amounts.limit is None:
        return room
    for route, devices in enumerate(pipeline.backward_routes or pipeline.routes):
        free = (amounts.limit - amounts.static - amounts.working[route]).tolist()
        held = [0] * pipeline.devices
        for stage, device in enumerate(devices):
            held[device] += int(amounts.activation[route, stage])
            room[route, stage] = held[device] + int(amounts.rebuilt[route, stage]) <= free[device]
    return room


def _at_once(pipeline: Pipeline) -> list[tuple[int, ...]]:
    """The routes of microbatches that are held at one time in every schedule: each by itself, or the pieces of a sequence."""
    if not pipeline.mix.pieces:
        return [(route,) for route in sorted(set(pipeline.route_of_microbatch))]
    groups = groups_of(pipeline.mix, pipeline.ways, way_of_microbatch(pipeline))
    return [group.routes for group in groups if group.sequences]


def check_limit(pipeline: Pipeline) -> None:
    """Raise where a device cannot hold its static memory and one microbatch's activations.

    That is enough for some schedule: one microbatch after the other, every backward whole, which takes no more than the forwards
    have taken. Whether there is room to split it, where ``I`` takes more, says :func:`room_to_split`.

    Raises:
        TooLittleMemory: a device cannot; the message names it and what it needs.
        PipelineError: backwards run elsewhere than their forwards, and an input gradient takes more than those have left behind.
    """
    amounts = pipeline.amounts
    if amounts.limit is None:
        return
    if pipeline.backward_routes and amounts.rebuilt.any():
        problem = "more is retained than held, which a limit of memory cannot take where backwards run elsewhere than forwards"
        raise PipelineError("memory.retained", f"{problem}; expected at most the activation")
    needed = least_limits(pipeline)
    for device, limit in enumerate(amounts.limit.tolist()):
        if needed[device] > limit:
            one = "sequence" if pipeline.mix.pieces else "microbatch"
            beside = ", with what a backward takes while it runs" if amounts.working.any() else ""
            raise TooLittleMemory(
                f"memory.limit[{device}]" if isinstance(pipeline.memory.limit, tuple) else "memory.limit",
                f"device {device} needs at least {plain(Fraction(needed[device], amounts.per_unit))} (its static memory and one "
                f"{one}'s activations{beside}), got {plain(Fraction(limit, amounts.per_unit))}",
            )


def least_limits(pipeline: Pipeline) -> list[int]:
    """Per device, the least limit at which there may be a schedule: one microbatch after the other, every backward whole.

    Where some are copied to the host, less may be there; whether that leads to a schedule, a search has to say.
    """
    most = np.maximum.reduce([least_held(pipeline, routes) for routes in _at_once(pipeline)])
    needed: list[int] = (most + pipeline.amounts.static).tolist()
    return needed
