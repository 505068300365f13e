"""A schedule: per device the order of its operations and their times; and what follows from these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from ppopt.op import WHOLE, Kind, Op, OpIndex, Pair, Send, parse
from ppopt.pipeline import IntArray, Pipeline, computed, microseconds
from ppopt.pipeline import halves as halves
from ppopt.pipeline.arrays import by_operation, every_row, in_pieces
from ppopt.pipeline.holding import held_over_time, most_on_host, peak_of
from ppopt.pipeline.holding import memory_changes as memory_changes
from ppopt.pipeline.rewriting import working_once

Objective: TypeAlias = Literal["makespan", "span"]
"""What is minimised: the makespan, or the largest device span."""
Number: TypeAlias = int | float
"""A time or an amount in the user's unit."""


@dataclass(frozen=True, eq=False)
class Order:
    """Per device, the numbers (:class:`~ppopt.op.OpIndex`) of its operations in the order in which it runs them."""

    index: OpIndex
    rows: tuple[IntArray, ...]

    @classmethod
    def of(cls, pipeline: Pipeline, rows: Iterable[Iterable[Op | Pair | str]]) -> Order:
        """An order from operations or their texts, a row per device. A ``W`` stands for all its pieces, one after the other.

        Raises:
            ValueError: a text is not an operation, or a stage, microbatch or piece is outside the pipeline.
        """
        each = ([parse(op) if isinstance(op, str) else op for op in row] for row in rows)
        return cls(
            pipeline.index,
            tuple(np.array([n for op in row for n in _numbers(pipeline.index, op)], dtype=np.int64) for row in each),
        )

    def divided(self, pipeline: Pipeline) -> Order:
        """The order for ``pipeline``, whose weight gradients come in pieces: those of each follow one another.

        It is the very same where they do not come in pieces.
        """
        if self.index == pipeline.index:
            return self
        return Order(pipeline.index, tuple(in_pieces(pipeline.index, row) for row in self.rows))

    def ops(self, device: int) -> list[Op | Pair]:
        """The operations of one device."""
        op = self.index.op
        return [op(number) for number in self.rows[device].tolist()]

    def texts(self) -> list[list[str]]:
        """Per device, its operations in PyTorch's notation."""
        return [self.index.texts(row.tolist()) for row in self.rows]

    @property
    def paired(self) -> bool:
        """Whether some operations run as overlapped pairs."""
        return any(bool((row >= self.index.size).any()) for row in self.rows)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Order)
            and self.index == other.index
            and len(self.rows) == len(other.rows)
            and all(map(np.array_equal, self.rows, other.rows))
        )

    def __hash__(self) -> int:
        return hash((self.index, *(row.tobytes() for row in self.rows)))


def written_out(index: OpIndex, op: Op | Pair) -> tuple[Op, ...]:
    """The pieces of an operation that has any, in their order; of a pair its halves; else the operation itself."""
    if isinstance(op, Pair):
        return op
    if index.pieces == 1 or op.kind != Kind.W or op.piece != WHOLE:
        return (op,)
    return tuple(op._replace(piece=piece) for piece in range(index.pieces))


def _numbers(index: OpIndex, op: Op | Pair) -> list[int]:
    return [index.number(op)] if isinstance(op, Pair) else list(map(index.number, written_out(index, op)))


def durations(pipeline: Pipeline, numbers: IntArray) -> IntArray:
    """What each of these operations takes, in ticks."""
    index, ticks = pipeline.index, pipeline.ticks
    table = np.concatenate((ticks.duration[:, : len(Kind)], ticks.sending, ticks.copying), axis=1)
    table = np.concatenate((table, ticks.duration[:, table.shape[1] :]), axis=1)
    first, second = halves(index, numbers)
    result = by_operation(pipeline, table, first)
    paired = second >= 0
    if paired.any():
        forward, backward = first[paired], second[paired]
        given = by_operation(pipeline, ticks.overlap[:, None], forward)
        apart = result[paired] + by_operation(pipeline, table, backward)
        result[paired] = np.where(given >= 0, given, apart)
    return result


def devices_of(pipeline: Pipeline, numbers: IntArray) -> IntArray:
    """The device of each of these operations; of a transfer the one that it is from."""
    table = pipeline.device_by_kind[:, : len(Kind)]
    return by_operation(pipeline, every_row(pipeline, table), halves(pipeline.index, numbers)[0])


def in_sequence(pipeline: Pipeline, numbers: IntArray) -> Order:
    """The order in which every device runs its operations in the sequence of ``numbers``; transfers are left out."""
    numbers = numbers[computed(pipeline.index, numbers)]
    device = devices_of(pipeline, numbers).astype(np.int16)  # short integers are sorted in linear time
    by_device = numbers[np.argsort(device, kind="stable")]
    ends = np.cumsum(np.bincount(device, minlength=pipeline.devices))
    return Order(pipeline.index, tuple(np.split(by_device, ends[:-1])))


def of_stages(pipeline: Pipeline, numbers: IntArray, table: IntArray) -> IntArray:
    """What of a table ``[route, kind, stage]`` each of these operations has; a pair the larger of its halves', transfers
    nothing."""
    index, route = pipeline.index, pipeline.route_by_microbatch
    result = np.zeros(len(numbers), dtype=np.int64)
    for half in halves(index, numbers) if table.any() else ():
        family, microbatch = np.divmod(half, index.microbatches)
        single = (half >= 0) & computed(index, half)
        own = table.reshape(len(table), -1)[route[microbatch], np.where(single, family, 0)]
        result = np.where(single, np.maximum(result, own), result)
    return result


class Transfers(NamedTuple):
    """The transfers that hold a link: per link (:attr:`~ppopt.pipeline.Pipeline.lines`) their numbers in their order, and starts
    in ticks."""

    rows: tuple[IntArray, ...] = ()
    start: tuple[IntArray, ...] = ()


NO_TRANSFERS = Transfers()


@dataclass(frozen=True, eq=False)
class Schedule:
    """An order with its start times in ticks, one array per device; when transfers hold their links, copies their engines."""

    pipeline: Pipeline
    order: Order
    start: tuple[IntArray, ...]
    transfers: Transfers = NO_TRANSFERS
    copies: Transfers = NO_TRANSFERS
    exact: ClassVar[bool] = True
    """Whether an operation begins at the very tick at which what it waits for ends; what was measured does not."""

    @cached_property
    def duration(self) -> tuple[IntArray, ...]:
        """Per device and operation, in ticks."""
        return tuple(durations(self.pipeline, row) for row in self.order.rows)

    @cached_property
    def end(self) -> tuple[IntArray, ...]:
        """Per device and operation, in ticks."""
        return tuple(s + d for s, d in zip(self.start, self.duration, strict=True))

    @cached_property
    def makespan(self) -> int:
        """Ticks from the begin of the first device to the end of the last one."""
        return max(span[1] for span in self.spans if span) - self.begin

    @cached_property
    def begin(self) -> int:
        """The tick at which the first device begins."""
        return min(span[0] for span in self.spans if span)

    @cached_property
    def spans(self) -> list[tuple[int, int] | None]:
        """Per device when it begins and ends, in ticks, with all that it has to do; ``None``: it is idle throughout."""
        starts, ends, ticks = self.start, self.end, self.pipeline.ticks
        if ticks.margins:
            before, after = (
                [of_stages(self.pipeline, row, table) for row in self.order.rows] for table in (ticks.lead, ticks.tail)
            )
            starts = tuple(s - b for s, b in zip(starts, before, strict=True))
            ends = tuple(e + a for e, a in zip(ends, after, strict=True))
        return [(int(s.min()), int(e.max())) if len(s) else None for s, e in zip(starts, ends, strict=True)]

    @cached_property
    def margins(self) -> list[tuple[int, int, int]]:
        """``(device, from, until)`` in ticks: what devices do before their first operation and after their last one."""
        found = []
        for device, (span, starts, ends) in enumerate(zip(self.spans, self.start, self.end, strict=True)):
            if span is not None:
                found += [(device, span[0], int(starts.min())), (device, int(ends.max()), span[1])]
        return [(device, since, until) for device, since, until in found if since < until]

    @cached_property
    def device_spans(self) -> tuple[int, ...]:
        """Per device, ticks from its begin to its end."""
        return tuple(span[1] - span[0] if span else 0 for span in self.spans)

    @property
    def device_span(self) -> int:
        """The largest of the devices' spans, in ticks."""
        return max(self.device_spans)

    @cached_property
    def work(self) -> tuple[int, ...]:
        """Per device, ticks spent computing."""
        return tuple(int(d.sum()) for d in self.duration)

    @property
    def bubble_ratio(self) -> float:
        """``1 - sum(work) / (D * makespan)``; 0 for a schedule that takes no time."""
        return 1 - sum(self.work) / (len(self.work) * self.makespan) if self.makespan else 0.0

    @property
    def span_bubble_ratio(self) -> float:
        """``1 - max_d work_d / max_d span_d``, the zero-bubble papers' bubble rate."""
        return 1 - max(self.work) / self.device_span if self.device_span else 0.0

    @property
    def summed_span_bubble_ratio(self) -> float:
        """``1 - sum(work) / sum_d span_d``: the share of the devices' own spans that is idle."""
        spans = sum(self.device_spans)
        return 1 - sum(self.work) / spans if spans else 0.0

    @cached_property
    def alone(self) -> Fraction:
        """What one device takes for all operations, one after the other: pairs apart, nothing repeated; in the user's unit.

        Of a measured step, whose operations are what they took, pairs stay together.
        """
        paired = Fraction(0)
        if self.exact:
            kept = working_once(self.pipeline) if self.pipeline.recompute != "none" else self.pipeline
            for row in self.order.rows:
                first, second = halves(kept.index, row)
                pairs = second >= 0
                apart = durations(kept, first[pairs]).sum() + durations(kept, second[pairs]).sum()
                paired += Fraction(int(apart - durations(kept, row[pairs]).sum()), kept.ticks.per_unit)
        return Fraction(sum(self.work), self.pipeline.ticks.per_unit) - self.repeated + paired

    @property
    def speed_up(self) -> float:
        """How many times as long one device takes (:attr:`alone`); at most D, but where pairs save time."""
        makespan = Fraction(self.makespan, self.pipeline.ticks.per_unit)
        return float(self.alone / makespan) if makespan else float(len(self.work))

    @cached_property
    def repeated(self) -> Fraction:
        """The time that all devices together spend on work that is done again (recomputing), in the user's unit."""
        pipeline = self.pipeline
        if pipeline.recompute == "none":
            return Fraction(0)
        kept = working_once(pipeline)
        once = sum(int(durations(kept, row).sum()) for row in self.order.rows)
        return Fraction(sum(self.work), pipeline.ticks.per_unit) - Fraction(once, kept.ticks.per_unit)

    @property
    def efficiency(self) -> float:
        """``(sum(work) - repeated) / (D * makespan)``: the share of the time in which devices do what has to be done."""
        if not self.makespan:
            return 1.0
        per_unit = self.pipeline.ticks.per_unit
        return float((sum(self.work) - self.repeated * per_unit) / (len(self.work) * self.makespan))

    @property
    def throughput(self) -> tuple[float, str] | None:
        """Samples or tokens in a unit of time, and that unit; ``None`` where nothing says how many a microbatch has.

        In a second where the unit of time is known. It is that of this pipeline alone: of one replica.
        """
        units, origin = self.pipeline.units, self.pipeline.origin
        each, what = units.samples_per_microbatch, "samples"
        bags = self.pipeline.mix.lengths
        if each is None:
            each, what = units.tokens_per_microbatch, "tokens"
            each = Fraction(sum(map(sum, bags)), len(bags)) if bags else each
        if each is None and "sequence" in origin.get("transformer", {}):
            each = Fraction(origin["transformer"]["sequence"] * origin.get("training", {}).get("microbatch", 1))
        if each is None or not self.makespan:
            return None
        time = Fraction(self.makespan, self.pipeline.ticks.per_unit)
        known = microseconds(units.time)
        if known is not None:
            time *= known / 10**6
        return float(
            each * self.pipeline.microbatches / time
        ), f"{what}/{'s' if known is not None else units.time or 'time unit'}"

    @property
    def overhead(self) -> float:
        """``(makespan - ideal) / ideal`` with ideal the mean work of the devices."""
        return self.makespan * len(self.work) / sum(self.work) - 1 if sum(self.work) else 0.0

    def objective(self, name: str) -> int:
        """``makespan`` or ``span`` (the device span), in ticks."""
        return {"makespan": self.makespan, "span": self.device_span}[name]

    @cached_property
    def peak_memory(self) -> tuple[int, ...]:
        """Per device, the most that it holds, static memory included (integer amounts of ``pipeline.amounts``).

        An activation is claimed when its ``F`` starts (and what ``I`` rebuilds when that does), and what an operation gives back
        is free for the next operation of the device: so it depends on the order alone. But where activations are copied to the
        host, or backwards run elsewhere than their forwards, it depends on the times.
        """
        if any(map(len, self.copies.rows)):
            return peaks_with_copies(self)
        static = self.pipeline.amounts.static
        if self.pipeline.backward_routes:
            return tuple(
                peak_of(changes) + int(static[device])
                for device, changes in enumerate(held_over_time(self.pipeline, self.order.rows, self.start, self.end))
            )
        peaks = []
        for device, row in enumerate(self.order.rows):
            claimed, released = memory_changes(self.pipeline, row)
            held = np.cumsum(claimed - np.concatenate(([0], released[:-1]))) if len(row) else np.zeros(1, dtype=np.int64)
            peaks.append(int(held.max() + static[device]))
        return tuple(peaks)

    @cached_property
    def host_peak(self) -> int:
        """The most that all devices together have on the host (integer amounts of ``pipeline.amounts``)."""
        lasting = (durations(self.pipeline, row) for row in self.copies.rows)
        return most_on_host(self.pipeline, zip(*self.copies, lasting, strict=True))

    @property
    def within_memory(self) -> bool:
        """Whether no device exceeds its limit, nor the host its own."""
        limit, host = self.pipeline.amounts.limit, self.pipeline.amounts.host
        if host is not None and self.host_peak > host:
            return False
        return limit is None or all(peak <= most for peak, most in zip(self.peak_memory, limit.tolist(), strict=True))


class Changes(NamedTuple):
    """When what a device holds changes, in order; of one time, what is given back comes first."""

    times: IntArray
    """In ticks."""
    held: IntArray
    """What it holds from then on: integer amounts of ``pipeline.amounts``, static memory included."""
    copies: IntArray
    """The number of the copy that changes it; -1: something else."""


def memory_changes_over_time(schedule: Schedule, device: int) -> Changes:
    """The changes of what a device holds."""
    pipeline, static = schedule.pipeline, schedule.pipeline.amounts.static[device]
    if pipeline.backward_routes:
        elsewhere = held_over_time(pipeline, schedule.order.rows, schedule.start, schedule.end)[device]
        times, amounts = np.array(sorted(elsewhere), dtype=np.int64).reshape(-1, 2).T
        return Changes(times, np.cumsum(amounts) + static, np.full(len(times), -1))
    claimed, released = memory_changes(pipeline, schedule.order.rows[device])
    computing = np.full(len(claimed), -1)
    changes = [(schedule.start[device], claimed, computing), (schedule.end[device], -released, computing)]
    for row, start in zip(*schedule.copies, strict=True):
        own = devices_of(pipeline, row) == device
        family, microbatch = np.divmod(row[own], pipeline.microbatches)
        kind, stage = np.divmod(family, pipeline.stages)
        away = pipeline.amounts.away[pipeline.route_by_microbatch[microbatch], stage]
        out, copies = kind == Send.OFFLOAD, row[own]
        changed = start[own] + np.where(out, durations(pipeline, copies), 0)
        changes.append((changed, np.where(out, -away, away), copies))
    times, amounts, numbers = (np.concatenate(column) for column in zip(*changes, strict=True))
    order = np.lexsort((amounts > 0, times))
    return Changes(times[order], np.cumsum(amounts[order]) + static, numbers[order])


def memory_levels(schedule: Schedule, device: int) -> tuple[IntArray, IntArray]:
    """When what a device holds changes, in ticks, and what it holds from then on: integer amounts, static memory included.

    Of one time, what is given back comes first; of operations that take no time, all that they take counts as held.
    """
    changes = memory_changes_over_time(schedule, device)
    return changes.times, changes.held


def peaks_with_copies(schedule: Schedule) -> tuple[int, ...]:
    """:attr:`Schedule.peak_memory` of a schedule with copies to the host, which depends on their times."""
    static = schedule.pipeline.amounts.static.tolist()
    return tuple(int(memory_levels(schedule, d)[1].max(initial=static[d])) for d in range(len(schedule.order.rows)))
