"""One order and every choice of the stages that recompute: its times, many choices at once, and what its devices hold."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ppopt.pipeline import IntArray, Pipeline, PipelineError
from ppopt.schedule import Order, durations, halves, memory_changes, of_stages
from ppopt.timing.demands import NO_DEMANDS
from ppopt.timing.links import topological
from ppopt.timing.loops import FINE
from ppopt.timing.timed import Entered, Waits, _flat, _further, _positions, _waits

BoolArray = npt.NDArray[np.bool_]
WIDE = 2**21
"""Times of single operations that are worked out at once."""
FEW = 16
"""So many choices are timed one by one. Measured: a pass by whole arrays takes 10 us per operation, whatever the choices; 16
sweeps of an order take twice as long in Python, and a twentieth of it compiled."""


class Spans(NamedTuple):
    """When each device starts and ends, its own traffic included: ``[choice, device]``, in ticks of :class:`Recomputed`."""

    first: IntArray
    last: IntArray


class Need(NamedTuple):
    """What a device lacks of its memory limit at some of its operations, and what each of its stages would save there."""

    stages: tuple[int, ...]
    missing: IntArray
    """``[operation]``: by how much it exceeds the limit where nothing recomputes; more than 0."""
    saved: IntArray
    """``[operation, place in stages]``: what it holds less where the stage recomputes."""


class Recomputed:
    """An order on a pipeline in which any stages may recompute.

    More recomputing makes no operation start or end earlier, and no device hold more: every operation takes as long or longer,
    and a stage holds as much or less at any place of the order, also while I runs: the larger of what it holds before and what it
    retains. That is so only because no transfer holds a link; where they do,
    first come, first served, an operation that takes longer may let another transfer go first.
    """

    def __init__(self, none: Pipeline, every: Pipeline, order: Order) -> None:
        """``none``: the pipeline without recomputing and without a memory limit; ``every``: with it in all stages, limited;
        ``order``: one that can run.

        Raises:
            OrderError: an operation of the order is missing, run twice, or on another device than its stage.
            ValueError: transfers hold links.
            PipelineError: there is no common unit that is coarse enough.
        """
        if none.lines:
            raise ValueError("the order of transfers that hold links differs from choice to choice")
        self.order = order
        self.stages = none.stages
        self.per_unit = math.lcm(none.ticks.per_unit, every.ticks.per_unit)
        """Ticks per unit of time."""
        numbers, offsets = _flat(none, order)
        self._rows = list(pairwise(offsets.tolist()))
        scale, longer = self.per_unit // none.ticks.per_unit, self.per_unit // every.ticks.per_unit
        device = np.repeat(np.arange(none.devices), np.diff(offsets))
        waits = _waits(none, _positions(none, numbers, device), NO_DEMANDS)
        longest = (
            int(durations(every, numbers).sum()) + int(waits.lag.sum()) + int(every.ticks.lead.max() + every.ticks.tail.max())
        )
        if longest * longer >= 2**61:
            raise PipelineError("costs", "the times have no common tick that is coarse enough; give them with fewer digits")
        self._duration = durations(none, numbers) * scale
        self._extra = durations(every, numbers) * longer - self._duration
        first, second = halves(none.index, numbers)
        self._stage = _stages_of(none, np.where(second >= 0, second, first))  # of a pair it is the backward that recomputes
        self._gather, self._scatter = (of_stages(none, numbers, table) * scale for table in (none.ticks.lead, none.ticks.tail))
        self._waits = Waits(waits.before, waits.after, waits.lag * scale)
        entered = Entered.of(none, numbers, offsets, longest * longer, scale)
        assert isinstance(entered, Entered)  # as its positions say
        self._entered, self._no_further = entered, _further(none.index.size, NO_DEMANDS)
        self.needs = needs_of(none, every, order)
        """For each device that exceeds its limit without recomputing."""

    @property
    def operations(self) -> int:
        """How many operations the order has; a pair is one."""
        return len(self._duration)

    @cached_property
    def _graph(self) -> tuple[list[list[tuple[int, int]]], list[int]]:
        """Per operation what it waits for and for how long after its end, and all operations, each behind these."""
        before: list[list[tuple[int, int]]] = [[] for _ in self._duration]
        following: list[list[tuple[int, int]]] = [[] for _ in self._duration]
        local = [(place - 1, place, 0) for a, b in self._rows for place in range(a + 1, b)]
        for a, b, lag in (*local, *zip(*(column.tolist() for column in self._waits), strict=True)):
            before[b].append((a, lag))
            following[a].append((b, lag))
        return before, topological(following)

    def spans(self, choices: BoolArray) -> Spans:
        """When the devices start and end under each choice (``[choice, stage]``: whether the stage recomputes)."""
        step = max(1, WIDE // max(1, len(self._duration)))
        if min(step, len(choices)) <= FEW:
            parts = list(map(self._swept, choices))
        else:
            parts = [self._spans(choices[i : i + step]) for i in range(0, len(choices), step)]
        return Spans(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _swept(self, choice: BoolArray) -> Spans:
        start, duration = self._gather.copy(), self._duration + self._extra * choice[self._stage]
        found = self._entered.sweep(start, duration, self._no_further, self._entered.end.copy(), np.empty(0, np.int64))
        assert found == FINE  # it can run
        return self._of_devices((start - self._gather)[:, None], (start + duration + self._scatter)[:, None])

    def _spans(self, choices: BoolArray) -> Spans:
        duration = self._duration[:, None] + self._extra[:, None] * choices.T[self._stage]
        start = np.repeat(self._gather[:, None], len(choices), axis=1)
        end = np.empty_like(start)
        before, sequence = self._graph
        for place in sequence:
            mine = start[place]
            for other, lag in before[place]:
                np.maximum(mine, end[other] + lag if lag else end[other], out=mine)
            np.add(mine, duration[place], out=end[place])
        start -= self._gather[:, None]
        end += self._scatter[:, None]
        return self._of_devices(start, end)

    def _of_devices(self, start: IntArray, end: IntArray) -> Spans:
        """Of the starts and ends of operations, ``[operation, choice]``, those of the devices."""
        busy = [(a, b) for a, b in self._rows if b > a]
        first = np.stack([start[a:b].min(axis=0) for a, b in busy], axis=1)
        last = np.stack([end[a:b].max(axis=0) for a, b in busy], axis=1)
        return Spans(first, last)


def _stages_of(pipeline: Pipeline, numbers: IntArray) -> IntArray:
    return numbers // pipeline.microbatches % pipeline.stages


def needs_of(none: Pipeline, every: Pipeline, order: Order) -> list[Need]:
    """Where the devices exceed their limits without recomputing, and what would be saved there.

    Raises:
        PipelineError: the amounts of memory have no common unit that is coarse enough.
    """
    few, many = none.amounts, every.amounts
    if many.limit is None:
        return []
    per_unit = math.lcm(few.per_unit, many.per_unit)
    scales = per_unit // few.per_unit, per_unit // many.per_unit
    most = (int(few.activation.max()) * none.stages * none.microbatches + int(few.static.max())) * scales[0]
    if max(most, int(many.limit.max()) * scales[1]) >= 2**61:
        raise PipelineError("memory", "the amounts have no common unit that is coarse enough; give them with fewer digits")
    needs = []
    for row, static, limit in zip(order.rows, few.static.tolist(), many.limit.tolist(), strict=True):
        columns: dict[int, IntArray] = {}
        held = np.full(max(1, len(row)), static * scales[0] - limit * scales[1], dtype=np.int64)
        for half in halves(none.index, row) if len(row) else ():
            of_none, of_every = (
                tuple(change * scale for change in memory_changes(pipeline, half))
                for pipeline, scale in ((none, scales[0]), (every, scales[1]))
            )
            held += _held(*of_none)
            less = [a - b for a, b in zip(of_none, of_every, strict=True)]
            stage = np.where(half >= 0, _stages_of(none, half), -1)
            for s in np.unique(stage[stage >= 0]).tolist():
                columns[s] = columns.get(s, 0) + _held(*(np.where(stage == s, change, 0) for change in less))
        over = held > 0
        if over.any():
            stages = tuple(sorted(columns))
            saved = np.stack([columns[s][over] for s in stages], axis=1) if stages else np.zeros((int(over.sum()), 0), np.int64)
            table = np.unique(np.column_stack((held[over], saved)), axis=0)
            needs.append(Need(stages, table[:, 0], table[:, 1:]))
    return needs


def _held(claimed: IntArray, released: IntArray) -> IntArray:
    """What is held at each operation, once it has started."""
    held = np.cumsum(claimed)
    held[1:] -= np.cumsum(released)[:-1]
    return held
