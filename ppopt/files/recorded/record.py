"""What one file of a real run says of one rank, whatever its format."""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ppopt.files.blocks import Parts
from ppopt.op import Kind, Op, Pair, Send

Times: TypeAlias = dict[tuple[int, Kind | Send], list[float]]
"""(stage, kind) -> seconds, a sample per step and microbatch."""
Messages: TypeAlias = dict[int, list[float]]
"""Bytes of a message -> seconds, one way."""


class ProfileError(ValueError):
    """Records or traces that cannot be read, or do not go together; says which file and key, and what is missing."""


class BlockError(ProfileError):
    """Ranges in the forwards of a trace that cannot be the layers of a model."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem} (--blocks says which ranges are layers; --layers none writes times of stages)")


class Clock(enum.Enum):
    """What the times of a file count from."""

    BARRIER = "a barrier of all ranks"
    HOST = "the clock of the rank's host"
    OWN = "the rank's own begin"


class Ran(NamedTuple):
    """An operation that was run, and when, in seconds."""

    op: Op | Pair
    begin: float
    end: float


@dataclass
class Recorded:
    """What one file says of one rank."""

    source: str
    rank: int | None
    microbatches: int
    times: Times
    """Without the first steps, and without what ran as a pair."""
    activation: dict[int, float] = field(default_factory=dict)
    """Stage -> bytes."""
    links: dict[tuple[int, int], Messages] = field(default_factory=dict)
    """Pair of ranks -> what its messages took."""
    blocks: dict[int, tuple[str, ...]] = field(default_factory=lambda: defaultdict(tuple))
    """Stage -> the names of its blocks, in the order in which its forward runs them."""
    parts: Parts = field(default_factory=dict)
    """How the times of stages with blocks are made up of theirs."""
    format: str = ""
    ranks: int | None = None
    """How many ranks the run had, where the file says it."""
    device: int | None = None
    """The device that the rank is, where the file says it."""
    route: tuple[int, ...] = ()
    """The device of each stage of the run, where the file says it."""
    replica: int = 0
    """Which one of the ranks that are the same device."""
    clock: Clock = Clock.OWN
    zero: int = 0
    """With :attr:`Clock.HOST`: nanoseconds of the host's clock at second 0."""
    steps: dict[int, list[Ran]] = field(default_factory=dict)
    """Number of a step, from the very first one on -> what was run in it, in the order of time; empty: the file has no begins."""
    pairs: dict[int, list[float]] = field(default_factory=dict)
    """Stage of the forward -> seconds of the overlapped pairs."""
    output: dict[int, float] = field(default_factory=dict)
    """Stage -> bytes of what it sends on."""

    @property
    def stages(self) -> frozenset[int]:
        """The stages of this rank."""
        return frozenset(stage for stage, _ in self.times) | frozenset(self.pairs)


def as_seconds(value: Any, where: str = "", scale: float = 1.0) -> float:
    """A time of a file, which counts it in parts of a second.

    Raises:
        ProfileError: it is no finite number, or negative; ``where``, its key, is named.
        ValueError: the same, of a file whose keys nobody writes by hand.
    """
    number = value * scale if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number) or number < 0:
        problem = f"expected a finite number >= 0, got {value!r}"
        raise ProfileError(f"{where}: {problem}") if where else ValueError(problem)
    return float(number)


def whole(tree: Mapping[str, Any], key: str, least: int = 0) -> int:
    """The whole number that a file has under a key.

    Raises:
        ProfileError: it is missing, or none.
    """
    if key not in tree:
        raise ProfileError(f"{key}: missing")
    value = tree[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ProfileError(f"{key}: expected a whole number >= {least}, got {value!r}")
    return value


def in_time(ran: list[Ran]) -> list[Ran]:
    """In the order of time."""
    return sorted(ran, key=lambda each: (each.begin, each.end))


def count(recorded: Recorded, ran: Ran) -> None:
    """One more sample of an operation."""
    seconds = ran.end - ran.begin
    if isinstance(ran.op, Pair):
        recorded.pairs.setdefault(ran.op.forward.stage, []).append(seconds)
    else:
        recorded.times.setdefault((ran.op.stage, ran.op.kind), []).append(seconds)
