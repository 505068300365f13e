"""The times of a pipeline as integers: durations of operations and transfers, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppopt.op import Kind
from ppopt.pipeline.arrays import IntArray
from ppopt.pipeline.parts import PipelineError, Value
from ppopt.pipeline.runtimes import TORCH
from ppopt.pipeline.tables import Rows, added, by_stage, common_denominator, durations, largest, scaled
from ppopt.pipeline.traffic import both, from_stage_down
from ppopt.pipeline.work_map import before_the_step, devices_by_kind, waits_for_weights

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline

MOST = 2**61
"""No sum of times may reach this number of ticks."""
TOO_FINE = "the times have no common tick that is coarse enough; give them with fewer digits"


class Ticks(NamedTuple):
    """All times of a pipeline as integers: ``ticks = time * per_unit``. Arrays are int64; -1 = there is no such operation."""

    per_unit: int
    duration: IntArray
    """``[route, kind, stage]``."""
    overlap: IntArray
    """``[route, stage]``: duration of a pair whose forward is of that stage; -1 = forward + backward."""
    latency: IntArray
    """``[from, to]``, 0 on the diagonal: from the end of a transfer to the consumer's earliest start."""
    occupancy: IntArray
    """``[from, to]``, 0 on the diagonal: how long a transfer holds its link."""
    sending: IntArray
    """``[route, send, stage]``: how long a transfer from the stage holds its link, forward results first, then gradients;
    0: there is no transfer that holds a link."""
    lead: IntArray
    """``[route, kind, stage]``: how long before an operation its device begins at least, with an all-gather, or with fetching
    weights."""
    tail: IntArray
    """``[route, kind, stage]``: how long after an operation its device ends at least: reduce-scatter and optimizer."""

    @property
    def lag(self) -> IntArray:
        """``[from, to]``: from the producer's end to the consumer's earliest start where nobody else needs the link."""
        return self.latency + self.occupancy

    @property
    def margins(self) -> bool:
        """Whether some device has something to do before its first operation or after its last one."""
        return bool(self.lead.any() or self.tail.any())


def ticks_of(pipeline: Pipeline) -> Ticks:
    """The times of a pipeline that has routes.

    Raises:
        PipelineError: their common tick is too fine for 64-bit integers, or which stages recompute is left open.
    """
    kinds = _by_kind(pipeline)
    overlap = by_stage(pipeline, pipeline.costs.overlap)
    latency, occupancy = _by_link(pipeline)
    gather, scatter = (from_stage_down(pipeline, value) for value in both(pipeline))
    lead, tail = (_margins(pipeline, *of) for of in ((gather, before_the_step(pipeline)), (scatter, pipeline.costs.optimizer)))
    tables: Rows = [*chain(*kinds), *overlap, *latency, *occupancy, *chain(*lead), *chain(*tail)]
    per_unit = common_denominator(tables)
    if largest(tables) * per_unit >= MOST:
        raise PipelineError("costs", TOO_FINE)
    holds = scaled(occupancy, per_unit)
    return Ticks(
        per_unit,
        duration=np.stack([scaled(table, per_unit) for table in kinds], axis=1),
        overlap=scaled(overlap, per_unit),
        latency=scaled(latency, per_unit),
        occupancy=holds,
        sending=_sending(pipeline.device_of, holds),
        lead=np.stack([scaled(rows, per_unit) for rows in lead]),
        tail=np.stack([scaled(rows, per_unit) for rows in tail]),
    )


def _margins(pipeline: Pipeline, exchanged: Rows, own: Sequence[Fraction] | Value | None) -> list[Rows]:
    """``[route][kind][stage]``: what is exchanged for the stage, and what is of the device alone, before or after operations."""
    each = own if isinstance(own, Sequence) else [own or Fraction(0)] * pipeline.devices
    return [
        [[(time or Fraction(0)) + each[device] for time, device in zip(row, on, strict=True)] for on in by_kind]
        for row, by_kind in zip(exchanged, devices_by_kind(pipeline), strict=True)
    ]


def _by_kind(pipeline: Pipeline) -> list[Rows]:
    """``[kind][route][stage]``: durations in the user's unit.

    PyTorch runs nothing in I of the first stage, whose input needs no gradient, and the whole backward in its W.
    """
    input_, weight = durations(pipeline, "backward_input"), durations(pipeline, "backward_weight")
    full = added(input_, weight) if pipeline.costs.backward is None else durations(pipeline, "backward")
    if pipeline.runtime == TORCH and pipeline.costs.split:
        input_ = [[Fraction(0), *row[1:]] for row in input_]
        weight = [[first[0], *row[1:]] for first, row in zip(full, weight, strict=True)]
    waits = waits_for_weights(pipeline)
    by_kind: dict[Kind, Rows] = {Kind.F: durations(pipeline, "forward"), Kind.B: full, Kind.I: input_, Kind.W: weight}
    if waits is None:
        return [by_kind[kind] for kind in Kind]
    return [added(by_kind[kind], [of_route[kind] for of_route in waits]) for kind in Kind]


def _by_link(pipeline: Pipeline) -> tuple[Rows, Rows]:
    """``[from][to]``: latency and occupancy in the user's unit."""
    devices = range(pipeline.devices)
    latency, occupancy = (
        table if isinstance(table, tuple) else [[table * (a != b) for b in devices] for a in devices]
        for table in (pipeline.links.latency, pipeline.links.occupancy)
    )
    return latency, occupancy


def _sending(device: IntArray, occupancy: IntArray) -> IntArray:
    """:attr:`Ticks.sending` of the stages' devices ``[route, stage]`` and of the occupancy ``[from, to]``."""
    routes, stages = device.shape
    sending = np.zeros((routes, 2, stages), dtype=np.int64)
    sending[:, 0, :-1] = occupancy[device[:, :-1], device[:, 1:]]
    sending[:, 1, 1:] = occupancy[device[:, 1:], device[:, :-1]]
    return sending


def lines_of(pipeline: Pipeline) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The links that transfers hold, each as the pairs of devices ``(from, to)`` that send over it; shared links first."""
    device, sending = pipeline.device_of, pipeline.ticks.sending
    used = {
        (int(device[route, stage]), int(device[route, stage + (-1 if send else 1)]))
        for route, send, stage in np.argwhere(sending > 0).tolist()
    }
    groups = [tuple(pair for pair in group if pair in used) for group in pipeline.links.shared]
    alone = sorted(used.difference(*groups))
    return (*(group for group in groups if group), *((pair,) for pair in alone))


def work_of(pipeline: Pipeline) -> IntArray:
    """``[device]``: the least work in ticks, every backward run the cheaper way; without overlapped pairs."""
    duration = pipeline.ticks.duration
    split = np.where(duration[:, Kind.I] >= 0, duration[:, Kind.I] + duration[:, Kind.W], np.iinfo(np.int64).max)
    per_microbatch = duration[:, Kind.F] + np.minimum(duration[:, Kind.B], split)
    work = np.zeros(pipeline.devices, dtype=np.int64)
    for route, microbatches in enumerate(pipeline.microbatches_of):
        for kinds, times in ((Kind.F, duration[route, Kind.F]), (Kind.B, per_microbatch[route] - duration[route, Kind.F])):
            np.add.at(work, pipeline.device_by_kind[route, kinds], times * len(microbatches))
    return work


def horizon_of(pipeline: Pipeline) -> int:
    """A number of ticks by which every schedule that wastes no time has ended."""
    ticks = pipeline.ticks
    per_microbatch = sum(int(max(ticks.duration[:, kind].sum(axis=1).max(), 0)) for kind in Kind)
    margins = int(ticks.lead.max() + ticks.tail.max())
    transfers = 2 * pipeline.stages * int(ticks.lag.max())
    return pipeline.microbatches * (per_microbatch + transfers) + margins + 1


def check_horizon(pipeline: Pipeline) -> None:
    """Raise where the longest schedule that wastes no time would have too many ticks.

    Raises:
        PipelineError: it would.
    """
    if horizon_of(pipeline) >= MOST:
        raise PipelineError("costs", TOO_FINE)
