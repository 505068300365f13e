"""What operations claim of the memory and give back, and what devices hold over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from ppopt.op import Kind, Send
from ppopt.pipeline.arrays import IntArray, by_operation, halves

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline


def memory_changes(pipeline: Pipeline, numbers: IntArray, *, elsewhere: bool = False) -> tuple[IntArray, IntArray]:
    """What each operation claims at its start and releases at its end (integer amounts of ``pipeline.amounts``).

    Of stages whose backward runs on another device than the forward nothing is said, or, with ``elsewhere``, the same: what these
    claim and release is that other device's.
    """
    first, second = halves(pipeline.index, numbers)
    changes = _changes(pipeline, elsewhere)
    claimed, released = (by_operation(pipeline, table, first) for table in changes)
    paired = second >= 0
    if paired.any():
        for column, table in zip((claimed, released), changes, strict=True):
            column[paired] += by_operation(pipeline, table, second[paired])
    return claimed, released


def _changes(pipeline: Pipeline, elsewhere: bool) -> tuple[IntArray, IntArray]:
    """:func:`memory_changes` of single operations, ``[route, row, stage]``; transfers have rows, too."""
    index, amounts = pipeline.index, pipeline.amounts
    home = pipeline.device_by_kind
    claimed, released = np.zeros((2, len(home), len(index.kinds), index.stages), dtype=np.int64)
    backward = [Kind.B, Kind.I, *index.weights]
    working = np.take_along_axis(amounts.working, home[:, Kind.B], axis=1)
    claimed[:, backward] = released[:, backward] = working[:, None]
    claimed[:, Kind.F] += amounts.activation
    claimed[:, Kind.I] += amounts.rebuilt
    released[:, Kind.B] += amounts.activation
    released[:, Kind.I] += amounts.activation - amounts.kept
    released[:, index.weights[-1]] += amounts.retained
    if pipeline.backward_routes and not elsewhere:
        away = home[:, Kind.F] != home[:, Kind.B]
        claimed.swapaxes(1, 2)[away] = released.swapaxes(1, 2)[away] = 0
    return claimed, released


def held_over_time(
    pipeline: Pipeline, rows: Sequence[IntArray], start: Sequence[IntArray], end: Sequence[IntArray]
) -> list[list[tuple[int, int]]]:
    """Per device, ``(tick, change)`` of what it holds beside what it always does, wherever the operations run that change it."""
    changes: list[list[tuple[int, int]]] = [[] for _ in range(pipeline.devices)]
    for row, starts, ends in zip(rows, start, end, strict=True):
        for half in halves(pipeline.index, row):
            run = half >= 0
            numbers = half[run]
            claimed, released = memory_changes(pipeline, numbers, elsewhere=True)
            family, microbatch = np.divmod(numbers, pipeline.microbatches)
            device = pipeline.device_by_kind[pipeline.route_by_microbatch[microbatch], Kind.B, family % pipeline.stages]
            for at, amounts in ((starts[run], claimed), (ends[run], -released)):
                for d, tick, amount in zip(device.tolist(), at.tolist(), amounts.tolist(), strict=True):
                    if amount:
                        changes[d].append((tick, amount))
    return changes


def peak_of(changes: Iterable[tuple[int, int]]) -> int:
    """The most that is held; what is given back at a time is free for what is claimed at that time."""
    held = most = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most


def most_on_host(pipeline: Pipeline, copies: Iterable[tuple[IntArray, IntArray, IntArray]]) -> int:
    """The most that is on the host at a time: of each engine its copies by number, their starts, and how long they take."""
    changes = [(0, 0)]
    for row, start, takes in copies:
        family, microbatch = np.divmod(row, pipeline.microbatches)
        kind, stage = np.divmod(family, pipeline.stages)
        away = pipeline.amounts.away[pipeline.route_by_microbatch[microbatch], stage]
        out = kind == Send.OFFLOAD
        when = np.where(out, start, start + takes)
        changes += zip(when.tolist(), np.where(out, away, -away).tolist(), strict=True)
    return max(accumulate(amount for _, amount in sorted(changes)))
