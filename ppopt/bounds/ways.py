"""Times that are linear in the durations of the stages, and so in the cut of layers into stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from ppopt.op import Kind, Send

Time: TypeAlias = int | Fraction


class Once(IntEnum):
    """What the layers of a stage take once per step, on the device of the stage (:class:`~ppopt.pipeline.Layer`).

    Its numbers are none of a :class:`~ppopt.op.Kind`.
    """

    ALL_GATHER = len(Kind) + len(Send)
    REDUCE_SCATTER = ALL_GATHER + 1
    OPTIMIZER = ALL_GATHER + 2

    @property
    def field(self) -> str:
        """Which field of a layer it is."""
        return self.name.lower()


class Part(NamedTuple):
    """A duration of a stage: of ``F``, of ``I`` (or a fused backward), of ``W`` (what a split backward does beside ``I``), for
    microbatches of one size; or of what its layers take once per step."""

    kind: Kind | Once
    stage: int
    size: int = 0


@dataclass(frozen=True)
class Way:
    """A time: ``constant`` ticks, and durations of stages, each so often."""

    times: tuple[tuple[Part, int], ...] = ()
    constant: Time = 0

    @classmethod
    def of(cls, times: Mapping[Part, int], constant: Time = 0) -> Way:
        """A way in its normal form."""
        return cls(tuple(sorted((part, n) for part, n in times.items() if n)), constant)

    def value(self, duration: Mapping[Part, Time]) -> Time:
        """Ticks, where the stages have these durations."""
        return self.constant + sum(n * duration[part] for part, n in self.times)

    def below(self, other: Way) -> bool:
        """Whether it is no longer than another one, whatever the durations are."""
        more = dict(other.times)
        return self.constant <= other.constant and all(n <= more.get(part, 0) for part, n in self.times)

    def behind(self, other: Way) -> Way:
        """One after the other."""
        times = Counter(dict(self.times))
        times.update(dict(other.times))
        return Way.of(times, self.constant + other.constant)


NOTHING = Way()
"""No time."""


def shortest(ways: Sequence[Way]) -> tuple[Way, ...]:
    """The ways that may be the shortest: one that is no shorter than another, whatever the durations are, is left out."""
    kept: list[Way] = []
    for way in ways:
        if not any(other.below(way) for other in kept):
            kept = [other for other in kept if not way.below(other)] + [way]
    return tuple(kept)


def common(ways: Sequence[Way]) -> Way:
    """What all of some ways have: none of them is shorter, whatever the durations are."""
    each = [dict(way.times) for way in ways]
    least = {part: min(times.get(part, 0) for times in each) for part in (each[0] if each else {})}
    return Way.of(least, min((way.constant for way in ways), default=0))
