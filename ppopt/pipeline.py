"""The problem: a pipeline with its placement, costs, links and memory. Frozen, validated, hashable.

Every number is exact: integers, decimals and floats are kept as fractions (a float as the decimal that it
prints as), and :class:`Ticks` gives them as integers over one common denominator.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.op import Kind, OpIndex

Number: TypeAlias = int | float | Decimal | Fraction
Value: TypeAlias = Fraction | tuple[Fraction, ...]
"""One number for all, or one per device or stage."""
Table: TypeAlias = Fraction | tuple[tuple[Fraction, ...], ...]
"""One number for all pairs of devices, or D rows of D numbers: ``table[a][b]`` from a to b."""
IntArray: TypeAlias = npt.NDArray[np.int64]
Routes: TypeAlias = tuple[tuple[int, ...], ...]
Rows: TypeAlias = Sequence[Sequence[Fraction | None]]

PLACEMENTS = ("linear", "loop", "wave", "bidirectional")
MAX_DEVICES = 1024
MAX_STAGES = 4096
MAX_MICROBATCHES = 2**18
MAX_OPS = 10**7
"""Largest number of operations (three per stage and microbatch) that a pipeline may have."""


class PipelineError(ValueError):
    """A pipeline that cannot be. ``key`` is the dotted key of the model file, such as ``costs.forward[3]``."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key
        self.message = message


def exact(key: str, value: Any) -> Fraction:
    """``value`` as a fraction >= 0; a float means the decimal that it prints as."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        raise PipelineError(key, f"expected a number >= 0, got {value!r}")
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            raise PipelineError(key, f"expected a finite number >= 0, got {value}")
        if value and not -30 <= Decimal(str(value)).adjusted() <= 30:
            raise PipelineError(key, f"expected a number between 1e-30 and 1e30, got {value}")
        value = Fraction(str(value))
    if value < 0:
        raise PipelineError(key, f"expected a number >= 0, got {plain(Fraction(value))}")
    return Fraction(value)


def plain(value: Fraction | int) -> int | float:
    """An integer where ``value`` is whole, else the nearest double."""
    value = Fraction(value)
    return value.numerator if value.denominator == 1 else float(value)


def _values(key: str, value: Any) -> Value:
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(exact(f"{key}[{i}]", item) for i, item in enumerate(value))
    return exact(key, value)


def _optional_values(key: str, value: Any) -> Value | None:
    return None if value is None else _values(key, value)


def _table(key: str, value: Any) -> Table:
    if not isinstance(value, list | tuple | np.ndarray):
        return exact(key, value)
    rows = []
    for a, row in enumerate(value):
        if not isinstance(row, list | tuple | np.ndarray):
            raise PipelineError(f"{key}[{a}]", f"expected a row of numbers (a table is devices x devices), got {row!r}")
        rows.append(tuple(exact(f"{key}[{a}][{b}]", item) for b, item in enumerate(row)))
    return tuple(rows)


def _whole(key: str, value: Any, largest: int) -> int:
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise PipelineError(key, f"expected a whole number >= 1, got {value!r}")
    if value < 1:
        raise PipelineError(key, f"expected a whole number >= 1, got {value}")
    if value > largest:
        raise PipelineError(key, f"at most {largest} are supported, got {value}")
    return value


def _check_length(key: str, value: Value | None, length: int, what: str) -> None:
    if isinstance(value, tuple) and len(value) != length:
        raise PipelineError(key, f"expected one number or a list of {length} (one per {what}), got a list of {len(value)}")


@dataclass(frozen=True)
class Costs:
    """Durations of the operations, in the user's time unit.

    Each is one number or a list. With ``per="device"`` a number is what a device spends on one microbatch over all
    its chunks of a route (a chunk takes an equal part); with ``per="stage"`` it is what one stage spends.

    ``backward`` is the fused backward; left out it is the sum of the other two. Given alone, the backward is fused
    throughout, and ``backward_input`` and ``backward_weight`` stay ``None``; else those two default to 1.
    ``overlap`` is the duration of an overlapped pair, by default forward + backward; per stage, the forward's decides.
    """

    per: Literal["device", "stage"] = "device"
    forward: Value = Fraction(1)
    backward_input: Value | None = None
    backward_weight: Value | None = None
    backward: Value | None = None
    overlap: Value | None = None

    def __post_init__(self) -> None:
        if self.per not in ("device", "stage"):
            raise PipelineError("costs.per", f'expected "device" or "stage", got {self.per!r}')
        fused_only = self.backward is not None and self.backward_input is None and self.backward_weight is None
        for name in ("forward", "backward_input", "backward_weight", "backward", "overlap"):
            value = _optional_values(f"costs.{name}", getattr(self, name))
            if value is None and (name == "forward" or (name in ("backward_input", "backward_weight") and not fused_only)):
                value = Fraction(1)
            object.__setattr__(self, name, value)

    @property
    def split(self) -> bool:
        """Whether the backward can be run as ``I`` and ``W``."""
        return self.backward_input is not None


@dataclass(frozen=True)
class Links:
    """What a transfer between two devices takes; on one device it takes nothing.

    ``latency``: from the producer's end to the consumer's earliest start. ``occupancy``, ``shared`` and ``blocking``
    describe links that carry one transfer at a time; they are read and validated, and refused for now.
    """

    latency: Table = Fraction(0)
    occupancy: Table = Fraction(0)
    blocking: bool = False
    shared: tuple[tuple[tuple[int, int], ...], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "latency", _table("links.latency", self.latency))
        object.__setattr__(self, "occupancy", _table("links.occupancy", self.occupancy))
        if not isinstance(self.blocking, bool):
            raise PipelineError("links.blocking", f"expected true or false, got {self.blocking!r}")
        object.__setattr__(self, "shared", _shared(self.shared))

    def validate(self, devices: int) -> None:
        """Raise :class:`PipelineError` where these links do not fit ``devices`` or are not supported yet."""
        for key, table in (("links.latency", self.latency), ("links.occupancy", self.occupancy)):
            if isinstance(table, tuple):
                if len(table) != devices:
                    raise PipelineError(key, f"expected one number or {devices} rows (one per device), got {len(table)} rows")
                for a, row in enumerate(table):
                    if len(row) != devices:
                        raise PipelineError(f"{key}[{a}]", f"expected {devices} numbers (one per device), got {len(row)}")
                    if row[a] != 0:
                        problem = f"a device has no link to itself: expected 0, got {plain(row[a])}"
                        raise PipelineError(f"{key}[{a}][{a}]", problem)
        for g, group in enumerate(self.shared):
            for i, pair in enumerate(group):
                key = f"links.shared[{g}][{i}]"
                for device in pair:
                    if not 0 <= device < devices:
                        raise PipelineError(key, f"there is no device {device}; devices are 0..{devices - 1}")
                if pair[0] == pair[1]:
                    raise PipelineError(key, f"a device has no link to itself, got {list(pair)}")
        occupied = any(map(any, self.occupancy)) if isinstance(self.occupancy, tuple) else bool(self.occupancy)
        for key, present in (
            ("links.occupancy", occupied),
            ("links.blocking", self.blocking),
            ("links.shared", bool(self.shared)),
        ):
            if present:
                raise PipelineError(key, "not supported yet: this version knows links with latency only; leave it out")


def _shared(groups: Any) -> tuple[tuple[tuple[int, int], ...], ...]:
    if not isinstance(groups, list | tuple):
        raise PipelineError("links.shared", f"expected a list of groups of device pairs, got {groups!r}")
    result = []
    for g, group in enumerate(groups):
        if not isinstance(group, list | tuple):
            raise PipelineError(f"links.shared[{g}]", f"expected a list of device pairs, got {group!r}")
        for i, pair in enumerate(group):
            whole = isinstance(pair, list | tuple) and len(pair) == 2
            if not whole or any(isinstance(d, bool) or not isinstance(d, int) for d in pair):
                raise PipelineError(f"links.shared[{g}][{i}]", f"expected a pair of devices [from, to], got {pair!r}")
        result.append(tuple((pair[0], pair[1]) for pair in group))
    return tuple(result)


@dataclass(frozen=True)
class Memory:
    """What the devices hold, in the user's unit of memory.

    ``activation`` is taken at the start of ``F``; all but ``retained`` (by default: nothing) is given back at the end of
    ``I``, the rest at the end of ``W``; at the end of ``B`` everything is. Both follow ``costs.per``. ``static`` (weights,
    optimizer state) is one number or one per device, for one copy of the weights. ``limit``: one number or one per
    device; ``None`` is unlimited.
    """

    activation: Value = Fraction(1)
    retained: Value | None = None
    static: Value = Fraction(0)
    limit: Value | None = None

    def __post_init__(self) -> None:
        for name in ("activation", "retained", "static", "limit"):
            value = _optional_values(f"memory.{name}", getattr(self, name))
            if value is None and name in ("activation", "static"):
                value = Fraction(int(name == "activation"))
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Units:
    """Labels of tables and pictures; they change no number."""

    time: str = ""
    memory: str = ""


class Ticks(NamedTuple):
    """All times of a pipeline as integers: ``ticks = time * per_unit``. Arrays are int64; -1 = there is no such operation."""

    per_unit: int
    duration: IntArray
    """``[route, kind, stage]``."""
    overlap: IntArray
    """``[route, stage]``: duration of a pair whose forward is of that stage; -1 = forward + backward."""
    latency: IntArray
    """``[from, to]``, 0 on the diagonal."""


class Amounts(NamedTuple):
    """All amounts of memory of a pipeline as integers: ``amount = memory * per_unit``."""

    per_unit: int
    activation: IntArray
    """``[route, stage]``."""
    retained: IntArray
    """``[route, stage]``."""
    static: IntArray
    """``[device]``, all copies together."""
    limit: IntArray | None
    """``[device]``, or ``None``: unlimited."""


def routes_of(placement: str, devices: int, chunks: int) -> Routes:
    """The routes of a placement: for each, the device of every stage.

    ``linear``: 0..D-1 (one chunk). ``loop``: stage s on device s mod D. ``wave``: up, down, up, ….
    ``bidirectional``: one route up and one down (one chunk each).
    """
    up = tuple(range(devices))
    if placement in ("linear", "bidirectional") and chunks != 1:
        raise PipelineError("pipeline.chunks", f"the {placement} placement has one chunk per device and route, got {chunks}")
    if placement == "linear":
        return (up,)
    if placement == "loop":
        return (up * chunks,)
    if placement == "wave":
        return (tuple(d for chunk in range(chunks) for d in (up if chunk % 2 == 0 else up[::-1])),)
    if placement == "bidirectional":
        return (up, up[::-1])
    raise PipelineError("pipeline.placement", f"expected one of {', '.join(PLACEMENTS)} (or routes), got {placement!r}")


@dataclass(frozen=True)
class Pipeline:
    """D devices, M microbatches, the routes that these take, and what everything costs.

    ``routes`` are the devices of the stages, route by route; left empty they follow from ``placement`` and ``chunks``
    (given, ``placement`` is ``"routes"``). ``route_of_microbatch`` is by default the first half on route 0, the second on
    route 1. ``name`` and ``units`` are labels and take no part in comparisons.

    Raises:
        PipelineError: something is missing, out of range, of the wrong length, or cannot be satisfied by any schedule.
    """

    devices: int
    microbatches: int
    placement: str = "linear"
    chunks: int = 1
    routes: Routes = ()
    route_of_microbatch: tuple[int, ...] = ()
    costs: Costs = field(default_factory=Costs)
    links: Links = field(default_factory=Links)
    memory: Memory = field(default_factory=Memory)
    name: str = field(default="", compare=False)
    units: Units = field(default_factory=Units, compare=False)

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "devices", _whole("pipeline.devices", self.devices, MAX_DEVICES))
        set_(self, "microbatches", _whole("pipeline.microbatches", self.microbatches, MAX_MICROBATCHES))
        set_(self, "chunks", _whole("pipeline.chunks", self.chunks, MAX_STAGES))
        if self.devices * self.chunks > MAX_STAGES:
            raise PipelineError("pipeline.chunks", f"at most {MAX_STAGES} stages are supported, got {self.devices * self.chunks}")
        if self.routes:
            set_(self, "placement", "routes")
            set_(self, "routes", _explicit_routes(self.routes, self.devices))
            stages = len(self.routes[0])
            if self.chunks != 1 and self.chunks * self.devices != stages:
                problem = f"the routes have {stages} stages on {self.devices} devices, got {self.chunks}"
                raise PipelineError("pipeline.chunks", problem)
            set_(self, "chunks", max(1, stages // self.devices))
        else:
            set_(self, "routes", routes_of(self.placement, self.devices, self.chunks))
        operations = 3 * self.stages * self.microbatches
        if operations > MAX_OPS:
            problem = f"at most {MAX_OPS} operations (3 x stages x microbatches) are supported, got {operations}"
            raise PipelineError("pipeline.microbatches", problem)
        set_(self, "route_of_microbatch", self._split_over_routes())
        self._check_lengths()
        self.links.validate(self.devices)
        self._check_memory()
        if self._horizon() >= 2**61:
            raise PipelineError("costs", "the times have no common tick that is coarse enough; give them with fewer digits")

    def _split_over_routes(self) -> tuple[int, ...]:
        given = self.route_of_microbatch
        if not given:
            share = -(-self.microbatches // len(self.routes))
            return tuple(m // share for m in range(self.microbatches))
        key = "pipeline.route_of_microbatch"
        if len(given) != self.microbatches:
            raise PipelineError(key, f"expected {self.microbatches} routes (one per microbatch), got {len(given)}")
        for m, route in enumerate(given):
            if isinstance(route, bool) or not isinstance(route, int) or not 0 <= route < len(self.routes):
                raise PipelineError(f"{key}[{m}]", f"expected a route 0..{len(self.routes) - 1}, got {route!r}")
        return tuple(given)

    def _check_lengths(self) -> None:
        per, length = self.costs.per, self.stages if self.costs.per == "stage" else self.devices
        for name in ("forward", "backward_input", "backward_weight", "backward", "overlap"):
            _check_length(f"costs.{name}", getattr(self.costs, name), length, per)
        _check_length("memory.activation", self.memory.activation, length, per)
        _check_length("memory.retained", self.memory.retained, length, per)
        _check_length("memory.static", self.memory.static, self.devices, "device")
        _check_length("memory.limit", self.memory.limit, self.devices, "device")

    def _check_memory(self) -> None:
        amounts = self.amounts
        if (amounts.retained > amounts.activation).any():
            route, stage = map(int, np.argwhere(amounts.retained > amounts.activation)[0])
            index = stage if self.costs.per == "stage" else self.routes[route][stage]
            key = f"memory.retained[{index}]" if isinstance(self.memory.retained, tuple) else "memory.retained"
            raise PipelineError(key, "more is retained after the input gradient than the activation holds")
        if amounts.limit is None:
            return
        for device in range(self.devices):
            least = max(
                sum(int(amounts.activation[r, s]) for s in range(self.stages) if route[s] == device)
                for r, route in enumerate(self.routes)
            ) + int(amounts.static[device])
            if least > amounts.limit[device]:
                key = f"memory.limit[{device}]" if isinstance(self.memory.limit, tuple) else "memory.limit"
                raise PipelineError(
                    key,
                    f"device {device} needs at least {plain(Fraction(least, amounts.per_unit))} (its static memory and one "
                    f"microbatch's activations), got {plain(Fraction(int(amounts.limit[device]), amounts.per_unit))}",
                )

    def _horizon(self) -> int:
        """No schedule that wastes no time is longer than this many ticks."""
        ticks = self.ticks
        per_microbatch = sum(int(max(ticks.duration[:, kind].sum(axis=1).max(), 0)) for kind in Kind)
        return self.microbatches * (per_microbatch + 2 * self.stages * int(ticks.latency.max())) + 1

    def changed(self, **changes: Any) -> Pipeline:
        """A copy with other fields; what follows from a changed field (routes, microbatches' routes) is derived anew."""
        if changes.keys() & {"placement", "chunks", "devices"} and "routes" not in changes:
            changes["routes"] = () if "placement" in changes or self.placement != "routes" else self.routes
        if changes.keys() & {"microbatches", "routes"} and "route_of_microbatch" not in changes:
            changes["route_of_microbatch"] = ()
        return dataclasses.replace(self, **changes)

    def placed(self, placement: str, chunks: int = 1) -> Pipeline:
        """The same devices with another placement and the same costs per device.

        Costs and activations given as lists per stage become lists per device: what the device spends on one
        microbatch over all its stages of the first route that visits it.
        """
        if self.placement == placement and self.chunks == chunks:
            return self
        changes: dict[str, Any] = {"placement": placement, "chunks": chunks}
        if self.costs.per == "stage":
            costs = {
                name: self._per_device(getattr(self.costs, name))
                for name in ("forward", "backward_input", "backward_weight", "backward", "overlap")
            }
            changes["costs"] = Costs(per="device", **costs)  # type: ignore[arg-type]
            changes["memory"] = dataclasses.replace(
                self.memory,
                activation=self._per_device(self.memory.activation) or Fraction(0),
                retained=self._per_device(self.memory.retained),
            )
        return self.changed(**changes)

    def _per_device(self, value: Value | None) -> Value | None:
        if value is None:
            return None
        totals = [
            next(
                sum((_at(value, s) for s in range(self.stages) if route[s] == device), Fraction(0))
                for route in self.routes
                if device in route
            )
            for device in range(self.devices)
        ]
        return totals[0] if len(set(totals)) == 1 else tuple(totals)

    @property
    def stages(self) -> int:
        """S, the number of stages of a route."""
        return len(self.routes[0])

    @cached_property
    def index(self) -> OpIndex:
        """Numbers for this pipeline's operations."""
        return OpIndex(self.stages, self.microbatches)

    @cached_property
    def route_by_microbatch(self) -> IntArray:
        """:attr:`route_of_microbatch` as an array."""
        return np.asarray(self.route_of_microbatch, dtype=np.int64)

    @cached_property
    def microbatches_of(self) -> tuple[IntArray, ...]:
        """For each route its microbatches, ascending."""
        return tuple(np.flatnonzero(self.route_by_microbatch == r) for r in range(len(self.routes)))

    @cached_property
    def device_of(self) -> IntArray:
        """``[route, stage]`` -> device."""
        return np.asarray(self.routes, dtype=np.int64)

    @cached_property
    def ticks(self) -> Ticks:
        """Durations and latencies as integers."""
        costs = self.costs
        forward, weight = self._by_stage(costs.forward), self._by_stage(costs.backward_weight)
        input_ = self._by_stage(costs.backward_input)
        if costs.backward is not None:
            backward = self._by_stage(costs.backward)
        else:
            backward = [[_sum(i, w) for i, w in zip(*rows, strict=True)] for rows in zip(input_, weight, strict=True)]
        overlap = self._by_stage(costs.overlap)
        latency = self.links.latency
        if isinstance(latency, Fraction):
            rows = [[latency * (a != b) for b in range(self.devices)] for a in range(self.devices)]
        else:
            rows = [list(row) for row in latency]
        tables: Rows = [*forward, *backward, *input_, *weight, *overlap, *rows]
        per_unit = _common_denominator(tables)
        if _largest(tables) * per_unit >= 2**61:
            raise PipelineError("costs", "the times have no common tick that is coarse enough; give them with fewer digits")
        by_kind = [[forward[r], backward[r], input_[r], weight[r]] for r in range(len(self.routes))]
        return Ticks(
            per_unit,
            np.array([[_scaled(row, per_unit) for row in kinds] for kinds in by_kind], dtype=np.int64),
            np.array([_scaled(row, per_unit) for row in overlap], dtype=np.int64),
            np.array([_scaled(row, per_unit) for row in rows], dtype=np.int64),
        )

    @cached_property
    def amounts(self) -> Amounts:
        """Memory as integers."""
        memory = self.memory
        activation = self._by_stage(memory.activation)
        retained = activation if memory.retained is None else self._by_stage(memory.retained)
        static = [_at(memory.static, d) * self._copies(d) for d in range(self.devices)]
        limit = None if memory.limit is None else [_at(memory.limit, d) for d in range(self.devices)]
        tables: Rows = [*activation, *retained, static, limit or []]
        per_unit = _common_denominator(tables)
        if _largest(tables) * per_unit * self.stages * self.microbatches >= 2**62:
            raise PipelineError("memory", "the amounts have no common unit that is coarse enough; give them with fewer digits")
        return Amounts(
            per_unit,
            np.array([_scaled(row, per_unit) for row in activation], dtype=np.int64),
            np.array([_scaled(row, per_unit) for row in retained], dtype=np.int64),
            np.array(_scaled(static, per_unit), dtype=np.int64),
            None if limit is None else np.array(_scaled(limit, per_unit), dtype=np.int64),
        )

    @cached_property
    def work(self) -> IntArray:
        """``[device]``: the least work in ticks, every backward run the cheaper way; without overlapped pairs."""
        duration = self.ticks.duration
        split = np.where(duration[:, Kind.I] >= 0, duration[:, Kind.I] + duration[:, Kind.W], np.iinfo(np.int64).max)
        per_microbatch = duration[:, Kind.F] + np.minimum(duration[:, Kind.B], split)
        work = np.zeros(self.devices, dtype=np.int64)
        for route, microbatches in enumerate(self.microbatches_of):
            np.add.at(work, self.device_of[route], per_microbatch[route] * len(microbatches))
        return work

    def _by_stage(self, value: Value | None) -> list[list[Fraction | None]]:
        """``[route][stage]``: what one operation of the stage takes of a value given per device or per stage."""
        table: list[list[Fraction | None]] = []
        for route in self.routes:
            if value is None:
                table.append([None] * self.stages)
            elif self.costs.per == "stage":
                table.append([_at(value, s) for s in range(self.stages)])
            else:
                chunks = np.bincount(route, minlength=self.devices)
                table.append([_at(value, d) / int(chunks[d]) for d in route])
        return table

    def _copies(self, device: int) -> Fraction:
        """How many copies of its weights a device holds: its stages over all routes / most of its stages on one route."""
        held = [{s for s in range(self.stages) if route[s] == device} for route in self.routes]
        return Fraction(len(set().union(*held)), max(map(len, held)))

    def time(self, ticks: int) -> int | float:
        """Ticks in the user's unit: an integer where whole, else the nearest double."""
        return plain(Fraction(int(ticks), self.ticks.per_unit))

    def amount(self, units: int) -> int | float:
        """An integer amount of memory (:attr:`amounts`) in the user's unit."""
        return plain(Fraction(int(units), self.amounts.per_unit))


def _explicit_routes(routes: Any, devices: int) -> Routes:
    if not isinstance(routes, list | tuple) or not all(isinstance(route, list | tuple) for route in routes):
        raise PipelineError("pipeline.routes", f"expected a list of routes, each a list of devices, got {routes!r}")
    for r, route in enumerate(routes):
        key = f"pipeline.routes[{r}]"
        if not route:
            raise PipelineError(key, "expected at least one stage")
        if len(route) != len(routes[0]):
            raise PipelineError(key, f"expected {len(routes[0])} stages as on the first route, got {len(route)}")
        if len(route) > MAX_STAGES:
            raise PipelineError(key, f"at most {MAX_STAGES} stages are supported, got {len(route)}")
        for s, device in enumerate(route):
            if isinstance(device, bool) or not isinstance(device, int) or not 0 <= device < devices:
                raise PipelineError(f"{key}[{s}]", f"expected a device 0..{devices - 1}, got {device!r}")
    unused = set(range(devices)).difference(*routes)
    if unused:
        raise PipelineError("pipeline.routes", f"device {min(unused)} holds no stage of any route")
    return tuple(tuple(route) for route in routes)


def _at(value: Value, index: int) -> Fraction:
    return value[index] if isinstance(value, tuple) else value


def _sum(a: Fraction | None, b: Fraction | None) -> Fraction | None:
    return None if a is None or b is None else a + b


def _common_denominator(rows: Rows) -> int:
    return math.lcm(*(value.denominator for row in rows for value in row if value is not None))


def _largest(rows: Rows) -> Fraction:
    return max(value for row in rows for value in row if value is not None)


def _scaled(row: Sequence[Fraction | None], per_unit: int) -> list[int]:
    return [-1 if value is None else int(value * per_unit) for value in row]
