"""What all runtimes have in common: which layers each device holds, chunk by chunk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ppopt.pipeline import MAX_STAGES

Item: TypeAlias = int | str
"""What a stage holds: a decoder layer by its number from 0 on, or one of ``E`` (embedding), ``m0`` … (layers of multi-token
prediction), ``N`` (final norm) and ``L`` (head with the loss). In a hybrid pattern a layer is its symbol with its number, such as
``*0``; ``E3`` is one of these, ``E`` the embedding. Any other text is a module that only the model knows."""
Stage: TypeAlias = tuple[Item, ...]

EMBEDDING, NORM, HEAD = "E", "N", "L"
LOOP, WAVE = "loop", "wave"
"""Placements: stage s on device s mod D; or up the devices, down, up, … (with two chunks a V)."""

_PART = re.compile(r"[*+\-A-Z][0-9]+")
_MTP = re.compile(r"m[0-9]+")


class Refused(ValueError):
    """A runtime does not take a layout; says why, in our words."""


class NotExpressible(ValueError):
    """What a runtime has no way to say; nothing near it is written in its place."""

    def __init__(self, runtime: str, reason: str) -> None:
        super().__init__(f"{runtime}: {reason}")
        self.runtime, self.reason = runtime, reason


@dataclass(frozen=True)
class Layout:
    """The layers of a model on devices.

    Raises:
        ValueError: devices without chunks, with different numbers of them, or more stages than are supported.
    """

    devices: tuple[tuple[Stage, ...], ...]
    """``devices[d][c]``: what chunk c of device d holds, in the order in which data pass through it."""
    placement: str = LOOP
    """:data:`LOOP` or :data:`WAVE`; with one chunk always the former, since both are the same there."""

    def __post_init__(self) -> None:
        chunks = {len(held) for held in self.devices}
        if len(chunks) != 1 or 0 in chunks:
            raise ValueError("every device has to have the same number of chunks, at least one")
        if self.placement not in (LOOP, WAVE):
            raise ValueError(f"placement: expected {LOOP} or {WAVE}, got {self.placement!r}")
        if self.virtual * len(self.devices) > MAX_STAGES:
            raise ValueError(f"at most {MAX_STAGES} stages are supported, got {self.virtual * len(self.devices)}")
        if self.virtual == 1:
            object.__setattr__(self, "placement", LOOP)

    @classmethod
    def of(cls, stages: Iterable[Iterable[Item]], devices: int, placement: str = LOOP) -> Layout:
        """The layout of stages, given in the order in which data pass through them.

        Raises:
            ValueError: the stages cannot be dealt to ``devices`` equally.
        """
        held = [tuple(stage) for stage in stages]
        if devices < 1 or not held or len(held) % devices:
            raise ValueError(f"{len(held)} stages cannot be dealt equally to {devices} devices")
        chunks = range(len(held) // devices)
        return cls(
            tuple(tuple(held[stage_at(d, c, devices, placement)] for c in chunks) for d in range(devices)),
            placement,
        )

    @property
    def virtual(self) -> int:
        """Chunks of each device."""
        return len(self.devices[0])

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What each stage holds, in the order in which data pass through them."""
        count = len(self.devices)
        held: list[Stage] = [()] * (count * self.virtual)
        for d, chunks in enumerate(self.devices):
            for c, stage in enumerate(chunks):
                held[stage_at(d, c, count, self.placement)] = stage
        return tuple(held)

    @property
    def layers(self) -> tuple[int, ...]:
        """How many decoder layers each stage has, in the order of the stages; in a hybrid pattern each symbol is one."""
        return tuple(layers_in(stage) for stage in self.stages)


@dataclass(frozen=True)
class Reading:
    """How a runtime reads a layout, and what should be known about it although the runtime says nothing."""

    layout: Layout
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counts:
    """Of each stage, in order, how many layers it has, where E is on the first and L on the last of them."""

    layers: tuple[int, ...]
    mtp: tuple[int, ...]


def stage_at(device: int, chunk: int, devices: int, placement: str = LOOP) -> int:
    """The stage that a chunk of a device is."""
    back = placement == WAVE and chunk % 2 == 1
    return chunk * devices + (devices - 1 - device if back else device)


def layers_in(stage: Iterable[Item]) -> int:
    """How many decoder layers a stage has."""
    return sum(isinstance(item, int) or _PART.fullmatch(item) is not None for item in stage)


def filled(layers: Sequence[int], mtp: Sequence[int] = ()) -> list[Stage]:
    """Stages with these numbers of decoder layers and of MTP layers: E at the very beginning, L at the very end."""
    stages: list[Stage] = []
    first = first_mtp = 0
    for s, count in enumerate(layers):
        more = mtp[s] if mtp else 0
        begin: Stage = (EMBEDDING,) if s == 0 else ()
        end: Stage = (HEAD,) if s == len(layers) - 1 else ()
        numbers = (f"m{k}" for k in range(first_mtp, first_mtp + more))
        stages.append((*begin, *range(first, first + count), *numbers, *end))
        first += count
        first_mtp += more
    return stages


def counts_of(layout: Layout, runtime: str) -> Counts:
    """How many layers each stage has, for runtimes which take no more than numbers.

    ``N`` may be left out; where it is, it has to be on the last stage, as these runtimes have it.

    Raises:
        NotExpressible: E is not on the first stage or L not on the last, or the layers between are not all of them in order.
    """
    stages = layout.stages
    if any(NORM in stage for stage in stages[:-1]):
        raise NotExpressible(runtime, "the final norm (N) can only be on the last stage")
    if EMBEDDING not in stages[0] or HEAD not in stages[-1]:
        raise NotExpressible(runtime, "the embedding (E) has to be on the first stage and the head (L) on the last")
    found = [item for stage in stages for item in stage if item != NORM]
    mtp = [sum(isinstance(item, str) and _MTP.fullmatch(item) is not None for item in stage) for stage in stages]
    expected = [item for stage in filled([sum(layout.layers)], [sum(mtp)]) for item in stage]
    if found != expected:
        wrong = next((a for a, b in zip(found, expected, strict=False) if a != b), found[len(expected) :][:1])
        raise NotExpressible(runtime, f"expected E, all layers from 0 on in order, MTP layers and L; {wrong!r} is out of place")
    return Counts(layout.layers, tuple(mtp))
