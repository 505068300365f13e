"""The clocks of the ranks put together: no operation may begin before its inputs have been computed.

Let the times of each device be off by an unknown constant. Every message from device ``a`` to ``b``, whose operation ended at
``e`` and whose use began at ``s``, says that ``offset_a - offset_b <= s - e``. These are difference constraints: shortest paths
between the devices give the range in which each offset lies, and show whether there are any offsets at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.files.recorded import Clock, Ran
from ppopt.op import Kind, Op, Pair

How: TypeAlias = Literal["auto", "recorded", "fitted"]
"""``recorded``: clocks are taken as they are; ``fitted``: they follow from the messages; ``auto``: fitted where the files have no
common clock, else moved as little as causes and effects demand."""
Floats: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = Sequence[Sequence[Ran]]


@dataclass(frozen=True)
class Clocks:
    """What was done about the clocks of the devices; all times in seconds."""

    basis: Clock
    fitted: bool
    """Whether the offsets follow from the messages alone."""
    offsets: tuple[float, ...]
    """What was added to the times of each device."""
    uncertain: float | None
    """By how much a fitted offset may be wrong at most, with device 0 as it is; ``None``: not fitted, or not known."""
    early: float
    """By how much some operation begins before its input was computed, whatever the offsets: 0 where that does not happen."""


def needs(op: Op, stages: int) -> Iterator[Op]:
    """What an operation may need from another device; of a backward in one piece or two, whichever was run."""
    if op.kind == Kind.F and op.stage:
        yield Op(op.stage - 1, Kind.F, op.microbatch)
    elif op.kind in (Kind.B, Kind.I) and op.stage + 1 < stages:
        yield Op(op.stage + 1, Kind.B, op.microbatch)
        yield Op(op.stage + 1, Kind.I, op.microbatch)


def halves(op: Op | Pair) -> tuple[Op, ...]:
    """The operation itself, or the two of a pair."""
    return tuple(op) if isinstance(op, Pair) else (op,)


def aligned(rows: Rows, stages: int, basis: Clock, how: How = "auto") -> Clocks:
    """What to add to the times of each device's operations."""
    count = len(rows)
    limits = _limits(rows, stages)
    early = max(0.0, -_least_mean(limits))
    if how == "recorded":
        wrong = float(np.min(limits, initial=0.0))
        return Clocks(basis, False, (0.0,) * count, None, max(0.0, -wrong))
    paths = _shortest(limits + early)
    if how == "fitted" or basis == Clock.OWN:
        offsets, uncertain = _fitted(paths)
        return Clocks(basis, True, tuple(offsets.tolist()), uncertain, early)
    return Clocks(basis, False, tuple(_least_moved(paths).tolist()), None, early)


def moved(rows: Rows, offsets: Sequence[float]) -> list[list[Ran]]:
    """The rows with the offsets added."""
    return [
        [each._replace(begin=each.begin + offset, end=each.end + offset) for each in row]
        for row, offset in zip(rows, offsets, strict=True)
    ]


def _limits(rows: Rows, stages: int) -> Floats:
    """``[a, b]``: at most so much is the offset of ``a`` above that of ``b``; infinite where ``a`` sends nothing to ``b``."""
    limits = np.full((len(rows), len(rows)), np.inf)
    made = {half: (device, each.end) for device, row in enumerate(rows) for each in row for half in halves(each.op)}
    for b, row in enumerate(rows):
        for each in row:
            for half in halves(each.op):
                for needed in needs(half, stages):
                    a, end = made.get(needed, (b, 0.0))
                    if a != b:
                        limits[a, b] = min(limits[a, b], each.begin - end)
    return limits


def _shortest(limits: Floats) -> Floats:
    """Shortest paths between all devices (Floyd, Warshall); there is no negative cycle."""
    paths = limits.copy()
    np.fill_diagonal(paths, 0.0)
    for middle in range(len(paths)):
        paths = np.minimum(paths, paths[:, middle, None] + paths[None, middle, :])
    return paths


def _least_mean(limits: Floats) -> float:
    """The least mean of a cycle (Karp); infinite where there is none. Offsets exist where it is not negative."""
    count = len(limits)
    walks = [np.zeros(count)]
    for _ in range(count):
        walks.append(np.min(walks[-1][:, None] + limits, axis=0))
    last = walks[-1]
    if not np.isfinite(last).any():
        return np.inf
    with np.errstate(invalid="ignore"):
        means = [np.where(np.isfinite(walk), (last - walk) / (count - k), -np.inf) for k, walk in enumerate(walks[:-1])]
    return float(np.min(np.where(np.isfinite(last), np.max(means, axis=0), np.inf)))


def _fitted(paths: Floats) -> tuple[Floats, float | None]:
    """Offsets in the middle of what is possible with device 0 as it is, and by how much they may be wrong at most.

    The largest offsets are possible together, and so are the least; so is the middle of both, as what is possible is convex.
    """
    most, least = paths[:, 0], -paths[0]
    if np.isfinite(most).all() and np.isfinite(least).all():
        return (most + least) / 2, float(np.max(most - least, initial=0.0) / 2)
    for known in (least, most):  # messages in one direction alone: as if they took no time
        if np.isfinite(known).all():
            return known, None
    return _least_moved(paths), None


def _least_moved(paths: Floats) -> Floats:
    """Offsets whose largest is as small as possible."""
    furthest = max(0.0, float(np.max(-paths[np.isfinite(paths)], initial=0.0)) / 2)
    most = np.minimum(furthest, np.min(paths + furthest, axis=1))
    least = -np.minimum(furthest, np.min(paths + furthest, axis=0))
    middle: Floats = (most + least) / 2
    return middle
