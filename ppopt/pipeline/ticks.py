"""The times of a pipeline as integers: durations of operations and transfers, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppopt.op import Kind, Send
from ppopt.pipeline.arrays import IntArray, by_row
from ppopt.pipeline.offload import copy_times
from ppopt.pipeline.parts import TooFine, Value
from ppopt.pipeline.runtimes import TORCH
from ppopt.pipeline.scaling import longest_transfer, scaled_amounts, scaled_durations, scaled_transfers
from ppopt.pipeline.tables import Rows, added, by_stage, common_denominator, durations, most_scaled, once_each, scaled
from ppopt.pipeline.traffic import both, from_stage_down, of_stages
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
    """``[route, row, stage]``: the row is the kind. Where weight gradients come in pieces, that of ``W`` is their first piece,
    and the others have rows behind those of the transfers (:class:`~ppopt.op.OpIndex`), which have -1 here."""
    overlap: IntArray
    """``[route, stage]``: duration of a pair whose forward is of that stage; -1 = forward + backward."""
    latency: IntArray
    """``[from, to]``, 0 on the diagonal: from the end of a transfer to the consumer's earliest start."""
    occupancy: IntArray
    """``[from, to]``, 0 on the diagonal: how long a transfer holds its link; of microbatches that differ, the largest's."""
    sending: IntArray
    """``[route, send, stage]``: how long a transfer from the stage holds its link, forward results first, then gradients;
    0: there is no transfer that holds a link."""
    lead: IntArray
    """``[route, row, stage]``: how long before an operation its device begins at least, with an all-gather, or with fetching
    weights."""
    tail: IntArray
    """``[route, row, stage]``: how long after an operation its device ends at least: reduce-scatter and optimizer."""
    gather: IntArray
    """``[route, stage]``: how long the stage's weights are gathered before each of its passes; 0 where that is not done."""
    scatter: IntArray
    """``[route, stage]``: how long its gradients are scattered behind each of its passes; 0 where that is not done."""
    copying: IntArray
    """``[route, copy, stage]``: how long a copy of an activation to the host, or back, holds its engine; -1: none is made."""
    margin: IntArray
    """``[route, stage]``: how long before the backward the copy back has ended at least."""

    @property
    def lag(self) -> IntArray:
        """``[from, to]``: from the producer's end to the consumer's earliest start where nobody else needs the link."""
        return self.latency + self.occupancy

    @property
    def weight(self) -> IntArray:
        """``[route, stage]``: how long a whole weight gradient takes, of all its pieces; -1: there is none."""
        duration = self.duration
        rest = duration[:, len(Kind) + len(Send) :].sum(axis=1)
        whole: IntArray = duration[:, Kind.W] + np.where(duration[:, Kind.W] < 0, 0, rest)
        return whole

    @property
    def common(self) -> int:
        """The most ticks of which all times are multiples."""
        each = np.concatenate([of[of > 0] for of in self[1:]])
        return int(np.gcd.reduce(each)) if each.size else 1

    @property
    def margins(self) -> bool:
        """Whether some device has something to do before its first operation or after its last one."""
        return bool(self.lead.any() or self.tail.any())

    @property
    def pauses(self) -> bool:
        """Whether something is exchanged between the passes of a device."""
        return bool(self.gather.any() or self.scatter.any())


def ticks_of(pipeline: Pipeline) -> Ticks:
    """The times of a pipeline that has routes.

    Raises:
        PipelineError: their common tick is too fine for 64-bit integers, or which stages recompute is left open.
    """
    kinds = scaled_durations(pipeline, _by_kind(pipeline))
    pieces = pipeline.costs.weight_pieces
    kinds[Kind.W] = once_each(lambda row: [time if time is None else time / pieces for time in row], kinds[Kind.W])
    overlap = by_stage(pipeline, pipeline.costs.overlap)
    latency, occupancy = _by_link(pipeline)
    before, behind = (from_stage_down(pipeline, value) for value in both(pipeline))
    lead, tail = (_margins(pipeline, *of) for of in ((before, before_the_step(pipeline)), (behind, pipeline.costs.optimizer)))
    sending = scaled_transfers(pipeline, _sending(pipeline, occupancy))
    longest = longest_transfer(pipeline)
    none = Fraction(0)
    occupancy = [[time * longest if time and longest != 1 else time or none for time in row] for row in occupancy]
    copying = [scaled_amounts(pipeline, table) for table in copy_times(pipeline)]
    margin = [[pipeline.offload.margin if pipeline.offload else Fraction(0)] * pipeline.stages] * len(pipeline.routes)
    every_pass = int(pipeline.data_parallel.per_pass)
    gather, scatter = (
        once_each(lambda row: [part * every_pass for part in row], of_stages(pipeline, value)) for value in both(pipeline)
    )
    margins = (*chain(*lead), *chain(*tail))
    tables: Rows = [*chain(*kinds), *chain(*sending), *overlap, *latency, *occupancy, *margins, *gather, *scatter]
    tables = [*tables, *chain(*copying), *margin]
    per_unit = common_denominator(tables)
    if most_scaled(tables, per_unit) >= MOST:
        raise TooFine("costs", TOO_FINE)
    table_of = partial(scaled, per_unit=per_unit)
    return Ticks(
        per_unit,
        duration=_in_pieces(pipeline, np.stack([scaled(table, per_unit) for table in kinds], axis=1)),
        overlap=scaled(overlap, per_unit),
        latency=scaled(latency, per_unit),
        occupancy=scaled(occupancy, per_unit),
        sending=np.stack(once_each(table_of, sending)),
        lead=by_row(pipeline, np.stack(once_each(table_of, lead))),
        tail=by_row(pipeline, np.stack(once_each(table_of, tail))),
        gather=scaled(gather, per_unit),
        scatter=scaled(scatter, per_unit),
        copying=np.stack([scaled(table, per_unit) for table in copying], axis=1),
        margin=scaled(margin, per_unit),
    )


def _in_pieces(pipeline: Pipeline, duration: IntArray) -> IntArray:
    """:attr:`Ticks.duration` of ``[route, kind, stage]``, where ``W`` has the time of one piece."""
    rows = by_row(pipeline, duration)
    if rows is not duration:
        rows[:, list(Send)] = -1
    return rows


def _margins(pipeline: Pipeline, exchanged: Rows, own: Sequence[Fraction] | Value | None) -> list[Rows]:
    """``[route][kind][stage]``: what is exchanged for the stage, and what is of the device alone, before or after operations."""
    each = own if isinstance(own, Sequence) else [own or Fraction(0)] * pipeline.devices

    def row(times: Sequence[Fraction | None], by_kind: Sequence[Sequence[int]]) -> list[list[Fraction]]:
        return [[(time or Fraction(0)) + each[device] for time, device in zip(times, on, strict=True)] for on in by_kind]

    return once_each(row, exchanged, devices_by_kind(pipeline))


def _by_kind(pipeline: Pipeline) -> list[Rows]:
    """``[kind][route][stage]``: durations in the user's unit.

    PyTorch runs nothing in I of the first stage, whose input needs no gradient, and the whole backward in its W.
    """
    input_, weight = durations(pipeline, "backward_input"), durations(pipeline, "backward_weight")
    full = added(input_, weight) if pipeline.costs.backward is None else durations(pipeline, "backward")
    if pipeline.runtime == TORCH and pipeline.costs.split:
        input_ = once_each(lambda rest: [Fraction(0), *rest[1:]], input_)
        weight = once_each(lambda first, rest: [first[0], *rest[1:]], full, weight)
    waits = waits_for_weights(pipeline)
    by_kind: dict[Kind, Rows] = {Kind.F: durations(pipeline, "forward"), Kind.B: full, Kind.I: input_, Kind.W: weight}
    if waits is None:
        return [by_kind[kind] for kind in Kind]
    return [added(by_kind[kind], [of_route[kind] for of_route in waits]) for kind in Kind]


def _by_link(pipeline: Pipeline) -> tuple[Rows, Rows]:
    """``[from][to]``: latency and occupancy in the user's unit."""
    devices, none = range(pipeline.devices), Fraction(0)
    latency, occupancy = (
        table if isinstance(table, tuple) else [[none if a == b else table for b in devices] for a in devices]
        for table in (pipeline.links.latency, pipeline.links.occupancy)
    )
    return latency, occupancy


def _sending(pipeline: Pipeline, occupancy: Rows) -> list[list[list[Fraction]]]:
    """:attr:`Ticks.sending` in the user's unit, of the occupancy ``[from][to]``."""
    none = Fraction(0)

    def row(route: Sequence[int]) -> list[list[Fraction]]:
        there = [occupancy[a][b] or none for a, b in pairwise(route)]
        return [[*there, none], [none, *(occupancy[b][a] or none for a, b in pairwise(route))]]

    return once_each(row, pipeline.routes)


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
    split = np.where(duration[:, Kind.I] >= 0, duration[:, Kind.I] + pipeline.ticks.weight, np.iinfo(np.int64).max)
    per_microbatch = duration[:, Kind.F] + np.minimum(duration[:, Kind.B], split)
    work = np.zeros(pipeline.devices, dtype=np.int64)
    for route, microbatches in enumerate(pipeline.microbatches_of):
        for kinds, times in ((Kind.F, duration[route, Kind.F]), (Kind.B, per_microbatch[route] - duration[route, Kind.F])):
            np.add.at(work, pipeline.device_by_kind[route, kinds], times * len(microbatches))
    return work


def copies_of(pipeline: Pipeline) -> int:
    """Ticks that all copies of one microbatch take one after the other, with what they wait before their backwards."""
    ticks = pipeline.ticks
    each = np.maximum(ticks.copying, 0).sum(axis=1) + np.where(ticks.copying[:, 0] >= 0, ticks.margin, 0)
    return int(each.sum(axis=1).max())


def horizon_of(pipeline: Pipeline) -> int:
    """A number of ticks by which every schedule that wastes no time has ended."""
    ticks = pipeline.ticks
    per_microbatch = sum(int(max(row.sum(axis=1).max(), 0)) for row in ticks.duration.swapaxes(0, 1))
    margins = int(ticks.lead.max() + ticks.tail.max())
    per_microbatch += int((2 * ticks.gather + ticks.scatter).sum(axis=1).max())
    transfers = 2 * pipeline.stages * int(ticks.lag.max()) + copies_of(pipeline)
    return pipeline.microbatches * (per_microbatch + transfers) + margins + 1


def check_horizon(pipeline: Pipeline) -> None:
    """Raise where the longest schedule that wastes no time would have too many ticks.

    Raises:
        PipelineError: it would.
    """
    if horizon_of(pipeline) >= MOST:
        raise TooFine("costs", TOO_FINE)
