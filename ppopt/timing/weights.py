"""What each device of a schedule does with weights, with activations and with its time, where these are no matter of course."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ppopt.op import Kind
from ppopt.pipeline import IntArray, kind_of
from ppopt.pipeline.cutting import weights_of_stages
from ppopt.pipeline.work_map import weight_use
from ppopt.schedule import Schedule, halves


class DeviceFigures(NamedTuple):
    """Of one device; times and amounts in the user's units."""

    stages_stored: int
    """How many stages' weights it keeps."""
    weights_stored: Fraction
    weight_fetches: int
    """How often it takes the weights of a stage from another device."""
    weights_fetched: Fraction
    """What these fetches are together."""
    fetch_time: Fraction
    """How long it waits for them."""
    activations_sent: int
    """How many results, gradients, and what forwards leave behind, it sends to other devices."""
    peak_activations: int
    """Of how many stages and microbatches it holds what their forwards leave behind, at most."""
    utilisation: float
    """Its work as a share of the makespan."""


_KNOWN: WeakKeyDictionary[Schedule, tuple[DeviceFigures, ...]] = WeakKeyDictionary()
"""Tables ask for one figure after the other; a schedule never changes."""


def device_figures(schedule: Schedule) -> tuple[DeviceFigures, ...]:
    """The figures of each device."""
    if schedule not in _KNOWN:
        _KNOWN[schedule] = _figures(schedule)
    return _KNOWN[schedule]


def _figures(schedule: Schedule) -> tuple[DeviceFigures, ...]:
    pipeline, makespan = schedule.pipeline, schedule.makespan
    index = pipeline.index
    counts = np.zeros((len(pipeline.routes), len(Kind), pipeline.stages), dtype=np.int64)
    for row in schedule.order.rows:
        for half in halves(pipeline.index, row):
            family, microbatch = np.divmod(half[half >= 0], pipeline.microbatches)
            row_, stage = np.divmod(family, pipeline.stages)
            np.add.at(counts, (pipeline.route_by_microbatch[microbatch], kind_of(index, row_), stage), 1)
    weights = weight_use(pipeline, counts.tolist(), weights_of_stages(pipeline))
    sent, peaks = transfers(schedule)[0], _peaks(schedule)
    return tuple(
        DeviceFigures(*own, sent[device], peaks[device], work / makespan if makespan else 0.0)
        for device, (own, work) in enumerate(zip(weights, schedule.work, strict=True))
    )


def transfers(schedule: Schedule) -> tuple[list[int], list[int]]:
    """Per device how many results it sends to other devices, and how many it receives.

    Each result, each gradient, and what each forward leaves behind for a backward on another device, is one.
    """
    pipeline = schedule.pipeline
    sent, received = ([0] * pipeline.devices for _ in range(2))
    for by_kind, microbatches in zip(pipeline.device_by_kind, pipeline.microbatches_of, strict=True):
        on, back = by_kind[Kind.F], by_kind[Kind.B]
        hops: Sequence[tuple[int, int]] = [
            *zip(on[:-1].tolist(), on[1:].tolist(), strict=True),
            *zip(back[1:].tolist(), back[:-1].tolist(), strict=True),
            *zip(on.tolist(), back.tolist(), strict=True),
        ]
        for a, b in hops:
            if a != b:
                sent[a] += len(microbatches)
                received[b] += len(microbatches)
    return sent, received


def _peaks(schedule: Schedule) -> list[int]:
    """Per device, the most stages and microbatches that it holds something of, from the start of F to the end of B or W."""
    pipeline = schedule.pipeline
    changes: list[list[IntArray]] = [[] for _ in range(pipeline.devices)]  # columns of times and changes
    for row, starts, ends in zip(schedule.order.rows, schedule.start, schedule.end, strict=True):
        for half in halves(pipeline.index, row):
            family, microbatch = np.divmod(half, pipeline.microbatches)
            place, stage = np.divmod(family, pipeline.stages)
            counts = (half >= 0) & np.isin(place, (Kind.F, Kind.B, pipeline.index.weights[-1]))
            device = pipeline.device_by_kind[pipeline.route_by_microbatch[microbatch], Kind.B, stage]
            changed = np.stack((np.where(place == Kind.F, starts, ends), np.where(place == Kind.F, 1, -1)))
            for d in np.unique(device[counts]).tolist():
                changes[d].append(changed[:, counts & (device == d)])
    return [_peak(np.concatenate(of_device, axis=1)) if of_device else 0 for of_device in changes]


def _peak(changes: IntArray) -> int:
    """The most that is held; of one time, what is given back comes first."""
    return int(np.cumsum(changes[1, np.lexsort(changes[::-1])]).max(initial=0))
