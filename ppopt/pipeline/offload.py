"""Activations that move to the host between forward and backward: what a copy takes, and who shares the copy engines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ppopt.op import COPIES, Kind, Send
from ppopt.pipeline.parts import Given, Number, PipelineError, Value, check_length, exact, optional_values, plain
from ppopt.pipeline.tables import Rows, by_stage, entry, held, once_each

if TYPE_CHECKING:
    from ppopt.pipeline.arrays import IntArray
    from ppopt.pipeline.model import Pipeline

Which: TypeAlias = Literal["choose", "all", "half", "none", "sail"] | Value
"""What is copied: a word, or the fraction of its microbatches that every stage, or each, copies."""
WORDS = ("choose", "all", "half", "none", "sail")


@dataclass(frozen=True)
class Offload:
    """Activations move to the host after their forward and come back before their backward, beside what devices compute.

    A copy of one microbatch's activation takes ``time``, to the host and (unless ``time_in`` is given) back; both follow
    ``costs.per``. Or ``rate`` and ``rate_in`` are amounts of memory in a unit of time, one number or one per device; 0: no copy
    is ever made. ``amount`` is the part of the activation that moves, by default all of it; it follows ``costs.per`` too. Where
    microbatches differ, time and amount are of one that holds what the memory says, and go with what is held of each.

    A device has two copy ``engines``, one for each direction, or 1 for both. An engine makes one copy at a time, without a pause.
    The devices of a group in ``shared`` have their engines in common. The copy in ends ``margin`` before the backward starts.
    ``host_limit``: how much all devices together may keep on the host.

    ``stages`` says what is copied: ``"choose"`` leaves each stage and microbatch to the solver; ``"all"``; ``"half"``: the first
    half of the stages of each device and route, rounded up; ``"none"``; or a fraction of its microbatches for every stage, or a
    list of fractions, evenly spread. ``"sail"`` is a rule for orders (:func:`ppopt.timing.sail.sail`), which a solver does not
    take.

    Raises:
        PipelineError: neither time nor rate is given, or both, or something is out of range.
    """

    time: Value | None = None
    time_in: Value | None = None
    rate: Value | None = None
    rate_in: Value | None = None
    amount: Value | None = None
    engines: Literal[1, 2] = 2
    shared: tuple[tuple[int, ...], ...] = ()
    margin: Fraction = Fraction(0)
    host_limit: Fraction | None = None
    stages: Which = "choose"

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(
            self,
            time: Given | None = None,
            time_in: Given | None = None,
            rate: Given | None = None,
            rate_in: Given | None = None,
            amount: Given | None = None,
            engines: int = 2,
            shared: Sequence[Sequence[int]] = (),
            margin: Number = 0,
            host_limit: Number | None = None,
            stages: str | Given = "choose",
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in (*SPEEDS, "amount"):
            object.__setattr__(self, name, optional_values(f"offload.{name}", getattr(self, name)))
        object.__setattr__(self, "margin", exact("offload.margin", self.margin))
        if self.host_limit is not None:
            object.__setattr__(self, "host_limit", exact("offload.host_limit", self.host_limit))
        if isinstance(self.engines, bool) or self.engines not in (1, 2):
            problem = f"expected 1 (one for both directions) or 2 (one for each), got {self.engines!r}"
            raise PipelineError("offload.engines", problem)
        object.__setattr__(self, "shared", _groups(self.shared))
        object.__setattr__(self, "stages", _which(self.stages))
        self._check_speed()

    def _check_speed(self) -> None:
        if self.time is None and self.rate is None:
            raise PipelineError("offload.time", "missing; expected the time of a copy, or offload.rate")
        if self.time is not None and self.rate is not None:
            raise PipelineError("offload.rate", "give either time or rate, not both")
        for one, other in (("time", "rate"), ("rate", "time")):
            if getattr(self, one) is not None and getattr(self, f"{other}_in") is not None:
                raise PipelineError(f"offload.{other}_in", f"expected {one}_in beside {one}")

    def validate(self, pipeline: Pipeline) -> None:
        """Raise where this does not fit a pipeline with routes.

        Raises:
            PipelineError: a list has another length than there are devices or stages, there is no such device, more is moved than
                the activation, layers come with what is said of stages, or an overlapped pair takes no time.
        """
        overlap = pipeline.costs.overlap
        if overlap is not None and 0 in (overlap if isinstance(overlap, tuple) else (overlap,)):
            problem = "what pairs hold that take no time is not known beside copies to the host ([offload]); expected more than 0"
            raise PipelineError("costs.overlap", problem)
        length = {"stage": pipeline.stages, "device": pipeline.devices}
        for name in ("time", "time_in", "amount"):
            if pipeline.layers is not None and getattr(self, name) is not None:
                raise PipelineError(f"offload.{name}", "stages are made of layers here; expected offload.rate")
            check_length(f"offload.{name}", getattr(self, name), length[pipeline.costs.per], pipeline.costs.per)
        for name in ("rate", "rate_in"):
            check_length(f"offload.{name}", getattr(self, name), pipeline.devices, "device")
        if isinstance(self.stages, tuple):
            check_length("offload.stages", self.stages, pipeline.stages, "stage")
        for g, group in enumerate(self.shared):
            for i, device in enumerate(group):
                if device >= pipeline.devices:
                    problem = f"there is no device {device}; devices are 0..{pipeline.devices - 1}"
                    raise PipelineError(f"offload.shared[{g}][{i}]", problem)
        _check_amount(pipeline, self)


SPEEDS = ("time", "time_in", "rate", "rate_in")


def _groups(value: Any) -> tuple[tuple[int, ...], ...]:
    key = "offload.shared"
    if not isinstance(value, list | tuple):
        raise PipelineError(key, f"expected a list of groups of devices, got {value!r}")
    taken: set[int] = set()
    for g, group in enumerate(value):
        if not isinstance(group, list | tuple):
            raise PipelineError(f"{key}[{g}]", f"expected a list of devices, got {group!r}")
        for i, device in enumerate(group):
            if isinstance(device, bool) or not isinstance(device, int) or device < 0:
                raise PipelineError(f"{key}[{g}][{i}]", f"expected a device, got {device!r}")
            if device in taken:
                raise PipelineError(f"{key}[{g}][{i}]", f"device {device} is in a group already")
            taken.add(device)
    return tuple(tuple(group) for group in value if group)


def _which(value: Any) -> Which:
    key = "offload.stages"
    if isinstance(value, str):
        if value not in WORDS:
            words = ", ".join(f'"{word}"' for word in WORDS)
            raise PipelineError(key, f"expected {words}, a fraction or a list of fractions, got {value!r}")
        return value  # type: ignore[return-value]
    fractions = optional_values(key, value)
    if fractions is None:
        return "choose"
    for i, part in enumerate(fractions if isinstance(fractions, tuple) else (fractions,)):
        if part > 1:
            where = f"{key}[{i}]" if isinstance(fractions, tuple) else key
            raise PipelineError(where, f"expected a fraction of the microbatches, 0 to 1, got {plain(part)}")
    return fractions


def _check_amount(pipeline: Pipeline, offload: Offload) -> None:
    if offload.amount is None:
        return
    activations = by_stage(pipeline, pipeline.memory.activation)
    for route, row in enumerate(by_stage(pipeline, offload.amount)):
        for stage, (amount, activation) in enumerate(zip(row, activations[route], strict=True)):
            if amount is not None and activation is not None and amount > activation:
                index = stage if pipeline.costs.per == "stage" else pipeline.routes[route][stage]
                key = f"offload.amount[{index}]" if isinstance(offload.amount, tuple) else "offload.amount"
                given, most = (entry(of, index) for of in (offload.amount, pipeline.memory.activation))
                raise PipelineError(key, f"expected at most the activation ({plain(most)}), got {plain(given)}")


def check_settled(pipeline: Pipeline) -> None:
    """Raise where there are copies to the host and the cut of the layers is left open, whose search knows nothing of them.

    Raises:
        PipelineError: there are.
    """
    if pipeline.offload is not None:
        problem = '"best" is left open, and its search knows nothing of [offload]; expected "balanced", "even" or a list'
        raise PipelineError("pipeline.partition", problem)


# --- what follows for stages ---


def moving(pipeline: Pipeline) -> list[list[Fraction]]:
    """``[route][stage]``: what of an activation moves, in the user's unit; 0 where nothing may.

    Of microbatches that differ, of one that holds what the memory says (:func:`~ppopt.pipeline.scaling.scaled_amounts`).
    """
    offload = pipeline.offload
    if offload is None:
        return [[Fraction(0)] * pipeline.stages] * len(pipeline.routes)
    holds = held(pipeline)[0]
    given: Rows = holds if offload.amount is None else by_stage(pipeline, offload.amount)
    found = []
    for route, (row, most) in enumerate(zip(given, holds, strict=True)):
        amounts = [min(x, a) if x is not None else Fraction(0) for x, a in zip(row, most, strict=True)]
        found.append([x if _moves(pipeline, offload, route, stage) else Fraction(0) for stage, x in enumerate(amounts)])
    return found


def _moves(pipeline: Pipeline, offload: Offload, route: int, stage: int) -> bool:
    """Whether some microbatch of a stage may be copied."""
    rates = (offload.rate, offload.rate_in)
    slow = any(rate is not None and not entry(rate, pipeline.routes[route][stage]) for rate in rates)
    return not slow and copied(pipeline, route, stage) != ()


def share_of(pipeline: Pipeline, route: int, stage: int) -> Fraction | None:
    """The fraction of its microbatches that a stage copies; ``None``: that is left open."""
    assert pipeline.offload is not None
    which = pipeline.offload.stages
    if which in ("choose", "sail"):
        return None
    if which == "half":
        own = [s for s, device in enumerate(pipeline.routes[route]) if device == pipeline.routes[route][stage]]
        return Fraction(int(own.index(stage) < -(-len(own) // 2)))
    if isinstance(which, str):
        return Fraction(int(which == "all"))
    return entry(which, stage)


def copied(pipeline: Pipeline, route: int, stage: int) -> tuple[int, ...] | None:
    """The microbatches whose activation a stage copies; ``None``: that is left open.

    They are evenly spread over those of the route; where microbatches differ, over all on the same way, by their numbers.
    """
    share, own = share_of(pipeline, route, stage), pipeline.microbatches_of[route]
    if share is None or share == 1:
        return None if share is None else tuple(own.tolist())
    together = own
    if pipeline.mix.differs:
        way = [r for r, devices in enumerate(pipeline.routes) if devices == pipeline.routes[route]]
        together = np.flatnonzero(np.isin(pipeline.route_by_microbatch, way))
    so_far = [int(n * share) for n in range(len(together) + 1)]
    spread = together[np.diff(so_far) > 0]
    return tuple(spread[np.isin(spread, own)].tolist())


def copy_times(pipeline: Pipeline) -> tuple[Rows, Rows]:
    """``[route][stage]``: what a copy to the host takes, and one back, in the user's unit; ``None`` where none is made.

    As :func:`moving`, of one that holds what the memory says.
    """
    offload, amounts = pipeline.offload, moving(pipeline)
    if offload is None:
        none: Rows = [[None] * pipeline.stages] * len(pipeline.routes)
        return none, none

    def of(time: Value | None, rate: Value | None) -> Rows:
        def row(held: list[Fraction], given: list[Fraction | None], route: tuple[int, ...]) -> list[Fraction | None]:
            return [
                None if not amount else t if rate is None else amount / entry(rate, device)
                for amount, t, device in zip(held, given, route, strict=True)
            ]

        return once_each(row, amounts, by_stage(pipeline, time), pipeline.routes)

    out = of(offload.time, offload.rate)
    back = of(offload.time if offload.time_in is None else offload.time_in, offload.rate_in or offload.rate)
    return out, back


def with_values(offload: Offload, turned: Any) -> Offload:
    """The same with ``turned(name, value)`` in place of each value that follows ``costs.per``."""
    names = ("time", "time_in", "amount")
    return dataclasses.replace(offload, **{name: turned(f"offload.{name}", getattr(offload, name)) for name in names})


# --- engines ---


class Engine(NamedTuple):
    """A copy engine: it makes the copies in these directions of these devices, one at a time."""

    devices: tuple[int, ...]
    sends: tuple[Send, ...]

    def __str__(self) -> str:
        directions = {Send.OFFLOAD: "out of", Send.RELOAD: "into"}
        way = " and ".join(directions[send] for send in self.sends)
        return f"copies {way} {', '.join(map(str, self.devices))}"


def engines_of(pipeline: Pipeline) -> tuple[Engine, ...]:
    """The copy engines that copies may be made by, shared ones first."""
    offload = pipeline.offload
    if offload is None:
        return ()
    copying: IntArray = pipeline.ticks.copying
    used = {int(pipeline.device_of[route, stage]) for route, stage in np.argwhere(copying[:, 0] >= 0).tolist()}
    groups = [tuple(device for device in group if device in used) for group in offload.shared]
    alone = sorted(used.difference(*groups))
    ways = (COPIES,) if offload.engines == 1 else tuple((send,) for send in COPIES)
    return tuple(Engine(devices, way) for devices in (*filter(None, groups), *((d,) for d in alone)) for way in ways)


def least_held(pipeline: Pipeline, together: Sequence[int]) -> IntArray:
    """``[device]``: what a microbatch needs there at least (integers), copied where it may be; or the pieces of a sequence.

    ``together``: its route, or those of the pieces from the first on. While a backward runs it holds its whole activation, and
    its working set; of the device's earlier stages of this piece and of those before it what stays, since their backwards come
    later.
    """
    amounts, routes = pipeline.amounts, list(together)
    here = pipeline.device_by_kind[routes, Kind.B] == np.arange(pipeline.devices)[:, None, None]  # [device, route, stage]
    away = np.where(here, amounts.away[routes], 0)
    stays = np.where(here, amounts.activation[routes] - amounts.away[routes], 0)
    held = stays.cumsum(axis=1).cumsum(axis=2) + away + amounts.working[routes].T[:, :, None]
    least: IntArray = held.max(axis=(1, 2))
    return least
