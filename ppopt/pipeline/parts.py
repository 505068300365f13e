"""The parts of a pipeline: costs, links, memory. Every number is exact.

Integers, decimals and floats are kept as fractions, a float as the decimal that it prints as.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

Number: TypeAlias = int | float | Decimal | Fraction
Value: TypeAlias = Fraction | tuple[Fraction, ...]
"""One number for all, or one per device or stage."""
Table: TypeAlias = Fraction | tuple[tuple[Fraction, ...], ...]
"""One number for all pairs of devices, or D rows of D numbers: ``table[a][b]`` from a to b."""


Given: TypeAlias = Number | Sequence[Number]
"""What may be given for a :data:`Value`."""
GivenTable: TypeAlias = Number | Sequence[Sequence[Number]]
"""What may be given for a :data:`Table`."""


class PipelineError(ValueError):
    """A pipeline that cannot be. ``key`` is the dotted key of the model file, such as ``costs.forward[3]``."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key
        self.message = message


class ChunksMisplaced(PipelineError):
    """Several chunks on a placement that has one of each device and route."""


class TooLittleMemory(PipelineError):
    """A memory limit that no schedule keeps: it is below what one microbatch needs."""


class TooFine(PipelineError):
    """Numbers without a common unit that is coarse enough for 64-bit integers."""


_WITH_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*[A-Za-zµ]*\s*")
_AMOUNTS = ("memory", "activation", "retained", "weights", "saved")


def as_number(key: str, value: Any) -> str:
    """How a number that is written as a text, perhaps with a unit, is to be written; empty for anything else."""
    match = _WITH_UNIT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return ""
    unit = "memory" if any(name in key for name in _AMOUNTS) else "time"
    return f"; write {match[1]} (units.{unit} is a label)"


def exact(key: str, value: Any) -> Fraction:
    """``value`` as a fraction >= 0; a float means the decimal that it prints as.

    Raises:
        PipelineError: it is no number, negative, not finite, or outside 1e-30..1e30; ``key`` names it.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        raise PipelineError(key, f"expected a number >= 0, got {value!r}{as_number(key, value)}")
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


def optional_values(key: str, value: Any) -> Value | None:
    """One number or a list of them, exact; ``None``: nothing is given.

    Raises:
        PipelineError: a value is no number >= 0.
    """
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


def whole(key: str, value: Any, largest: int) -> int:
    """``value`` as a whole number from 1 to ``largest``.

    Raises:
        PipelineError: it is no such number; ``key`` names it.
    """
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise PipelineError(key, f"expected a whole number >= 1, got {value!r}")
    if value < 1:
        raise PipelineError(key, f"expected a whole number >= 1, got {value}")
    if value > largest:
        raise PipelineError(key, f"at most {largest} are supported, got {value}")
    return value


def check_length(key: str, value: Value | None, length: int, what: str) -> None:
    """Raise where ``value`` is a list of another length.

    Raises:
        PipelineError: it is; ``key`` names it.
    """
    if isinstance(value, tuple) and len(value) != length:
        raise PipelineError(key, f"expected one number or a list of {length} (one per {what}), got a list of {len(value)}")


QUADRATIC = ("forward_quadratic", "backward_input_quadratic", "backward_quadratic", "recompute_quadratic")
"""The fields of :class:`Costs` that are parts of durations: those that grow with the square of a sequence's length."""
DURATIONS = ("forward", "backward_input", "backward_weight", "backward", "overlap", "recompute", *QUADRATIC)
"""The fields of :class:`Costs` that are durations, or parts of them."""
MAX_PIECES = 256
"""Most pieces of a weight gradient."""


@dataclass(frozen=True)
class Costs:
    """Durations of the operations, in the user's time unit.

    Each is one number or a list. With ``per="device"`` a number is what a device spends on one microbatch over all
    its chunks of a route (a chunk takes an equal part); with ``per="stage"`` it is what one stage spends.

    ``backward`` is the fused backward; left out it is the sum of the other two. Given alone, the backward is fused
    throughout, and ``backward_input`` and ``backward_weight`` stay ``None``; else those two default to 1.
    ``overlap`` is the duration of an overlapped pair, by default forward + backward; per stage, the forward's decides.
    ``recompute`` is what ``B`` and ``I`` take longer in a stage that recomputes its activations first.

    ``optimizer`` is the time of the optimizer step: one number, or one per device, whatever ``per`` says. The step begins when
    the device's reduce-scatter is over, or else its last operation. It counts in makespan and device span, and is no work.

    ``forward_quadratic`` and so on are the parts of these durations that grow with the square of a sequence's length
    (:class:`~ppopt.pipeline.Mix`), by default 0; ``backward_quadratic`` is by default that of ``backward_input``.

    ``weight_pieces`` is into how many equal pieces every ``W`` is cut. Each is an operation, and other operations of the device
    may run between two of them. They run in their order; what ``W`` gives back is given back at the end of the last one.
    """

    per: Literal["device", "stage"] = "device"
    forward: Value = Fraction(1)
    backward_input: Value | None = None
    backward_weight: Value | None = None
    backward: Value | None = None
    overlap: Value | None = None
    recompute: Value | None = None
    optimizer: Value | None = None
    forward_quadratic: Value | None = None
    backward_input_quadratic: Value | None = None
    backward_quadratic: Value | None = None
    recompute_quadratic: Value | None = None
    weight_pieces: int = 1

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(
            self,
            per: Literal["device", "stage"] = "device",
            forward: Given = 1,
            backward_input: Given | None = None,
            backward_weight: Given | None = None,
            backward: Given | None = None,
            overlap: Given | None = None,
            recompute: Given | None = None,
            optimizer: Given | None = None,
            forward_quadratic: Given | None = None,
            backward_input_quadratic: Given | None = None,
            backward_quadratic: Given | None = None,
            recompute_quadratic: Given | None = None,
            weight_pieces: int = 1,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "optimizer", optional_values("costs.optimizer", self.optimizer))
        if self.per not in ("device", "stage"):
            raise PipelineError("costs.per", f'expected "device" or "stage", got {self.per!r}')
        fused_only = self.backward is not None and self.backward_input is None and self.backward_weight is None
        for name in DURATIONS:
            value = optional_values(f"costs.{name}", getattr(self, name))
            if value is None and (name == "forward" or (name in ("backward_input", "backward_weight") and not fused_only)):
                value = Fraction(1)
            object.__setattr__(self, name, value)
        pieces = whole("costs.weight_pieces", self.weight_pieces, MAX_PIECES)
        object.__setattr__(self, "weight_pieces", pieces)
        if pieces > 1 and fused_only:
            problem = f"costs.backward alone is given, so that no weight gradient is run by itself; expected 1, got {pieces}"
            raise PipelineError("costs.weight_pieces", problem)

    @property
    def split(self) -> bool:
        """Whether the backward can be run as ``I`` and ``W``."""
        return self.backward_input is not None


@dataclass(frozen=True)
class Links:
    """What a transfer between two devices takes; on one device it takes nothing.

    A transfer holds its link for ``occupancy``, and its data are there ``latency`` after that. A link carries one transfer at a
    time, each direction by itself; all pairs ``(from, to)`` of a group in ``shared`` are one link. With ``blocking`` neither end
    computes anything while a transfer holds the link (it may be part of several transfers at once). A transfer without
    occupancy holds nothing and stops nobody: its data arrive ``latency`` after the producer's end.

    ``weights`` is what a device waits for the weights of a stage that live on another one (:mod:`ppopt.pipeline.work_map`); they
    hold no link.
    """

    latency: Table = Fraction(0)
    occupancy: Table = Fraction(0)
    blocking: bool = False
    shared: tuple[tuple[tuple[int, int], ...], ...] = ()
    weights: Table | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            latency: GivenTable = 0,
            occupancy: GivenTable = 0,
            blocking: bool = False,
            shared: Sequence[Sequence[Sequence[int]]] = (),
            weights: GivenTable | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "latency", _table("links.latency", self.latency))
        object.__setattr__(self, "occupancy", _table("links.occupancy", self.occupancy))
        if not isinstance(self.blocking, bool):
            raise PipelineError("links.blocking", f"expected true or false, got {self.blocking!r}")
        object.__setattr__(self, "shared", _shared(self.shared))
        if self.weights is not None:
            object.__setattr__(self, "weights", _table("links.weights", self.weights))

    def uncontended(self) -> Links:
        """Links on which every transfer takes as long as on these, but none waits for another or stops anybody."""
        if isinstance(self.latency, Fraction) and isinstance(self.occupancy, Fraction):
            return Links(self.latency + self.occupancy, weights=self.weights)
        size = len(self.latency if isinstance(self.latency, tuple) else self.occupancy)  # type: ignore[arg-type]

        def at(table: Table, a: int, b: int) -> Fraction:
            return table[a][b] if isinstance(table, tuple) else table * (a != b)

        pairs = (self.latency, self.occupancy)
        both = tuple(tuple(sum((at(t, a, b) for t in pairs), Fraction(0)) for b in range(size)) for a in range(size))
        return Links(both, weights=self.weights)

    def validate(self, devices: int) -> None:
        """Raise :class:`PipelineError` where these links do not fit ``devices`` or are not supported yet.

        Raises:
            PipelineError: they do not; the message names the link.
        """
        for name in ("latency", "occupancy", "weights"):
            key, table = f"links.{name}", getattr(self, name)
            if isinstance(table, tuple):
                if len(table) != devices:
                    raise PipelineError(key, f"expected one number or {devices} rows (one per device), got {len(table)} rows")
                for a, row in enumerate(table):
                    if len(row) != devices:
                        raise PipelineError(f"{key}[{a}]", f"expected {devices} numbers (one per device), got {len(row)}")
                    if row[a] != 0:
                        problem = f"a device has no link to itself: expected 0, got {plain(row[a])}"
                        raise PipelineError(f"{key}[{a}][{a}]", problem)
        taken: set[tuple[int, int]] = set()
        for g, group in enumerate(self.shared):
            for i, pair in enumerate(group):
                key = f"links.shared[{g}][{i}]"
                for device in pair:
                    if not 0 <= device < devices:
                        raise PipelineError(key, f"there is no device {device}; devices are 0..{devices - 1}")
                if pair[0] == pair[1]:
                    raise PipelineError(key, f"a device has no link to itself, got {list(pair)}")
                if pair in taken:
                    raise PipelineError(key, f"{list(pair)} is on a shared link already: a transfer holds one link")
                taken.add(pair)


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

    ``activation`` is taken at the start of ``F``; ``retained`` is what is held between the end of ``I`` and the end of ``W``.
    Where that is less, the rest is given back at the end of ``I``; where it is more, the difference is taken at the start of
    ``I``, which leaves more behind than it found. At the end of ``W``, or of ``B``, everything is given back; ``B`` takes nothing
    more than ``F`` has taken. A stage that recomputes takes ``recompute_saved`` less at the start of ``F``. Without ``retained``
    a stage retains what it has taken then. These three follow ``costs.per``; the others are one number or one per device.
    ``static`` (weights, optimizer state) is for one copy of the weights. ``limit``: ``None`` is unlimited. ``working`` is what
    a backward needs beside all that while it runs: each of ``B``, ``I`` and ``W`` takes it at its start and gives it back at its
    end, of whichever stage of the device it is; ``None`` is nothing. Of microbatches that differ it grows with what is held.

    ``weights`` are those of a stage, one number or one per stage, whatever ``costs.per`` says; they come on top of ``static``.
    ``weights_on``: the devices that keep them, route by route and stage by stage; by default those that run the forwards.
    ``weights_kept``: ``"operation"`` (the default) or ``"step"``, for how long a device keeps what it has fetched.
    """

    activation: Value = Fraction(1)
    retained: Value | None = None
    static: Value = Fraction(0)
    limit: Value | None = None
    recompute_saved: Value | None = None
    working: Value | None = None
    weights: Value | None = None
    weights_on: tuple[tuple[int, ...], ...] | None = None
    weights_kept: str | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            activation: Given = 1,
            retained: Given | None = None,
            static: Given = 0,
            limit: Given | None = None,
            recompute_saved: Given | None = None,
            working: Given | None = None,
            weights: Given | None = None,
            weights_on: Sequence[Sequence[int]] | None = None,
            weights_kept: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.weights_kept not in (None, "operation", "step"):
            raise PipelineError("memory.weights_kept", f'expected "operation" or "step", got {self.weights_kept!r}')
        if isinstance(self.weights_on, list):  # what is in it is checked beside the routes
            object.__setattr__(self, "weights_on", tuple(tuple(r) if isinstance(r, list) else r for r in self.weights_on))
        for name in ("activation", "retained", "static", "limit", "recompute_saved", "working", "weights"):
            value = optional_values(f"memory.{name}", getattr(self, name))
            if value is None and name in ("activation", "static"):
                value = Fraction(int(name == "activation"))
            object.__setattr__(self, name, value)
