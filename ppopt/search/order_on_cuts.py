"""One order on all cuts of the layers: the cut on which it takes the least time within memory, by local search.

How long an order takes on hundreds of cuts is known in some milliseconds (:class:`ppopt.timing.OrderAtCosts`), and so is what
each device holds. An order is as good as the cut that it is run on: measured, named schedules of 40 layers in a loop of 4 chunks
on 4 devices take 2 to 20 % less on the cut that is found for each within a second.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ppopt import tabu
from ppopt.bounds.many_cuts import ManyCuts, counts_of, ends_of
from ppopt.bounds.ways import Once
from ppopt.clock import Clock
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Schedule
from ppopt.search.moves import Moves, Values, edges, every
from ppopt.search.near_cuts import At, retimed, value_of
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.timing import OrderAtCosts

SECONDS = 2e-8
"""Deterministic seconds for an operation of an order on a cut. Measured: about as long on an idle machine."""
PATIENCE = 8
"""Ways from the best cut in vain before the search is over, by default. Measured with a named schedule of 56 layers in a loop of
4 on 4 devices: 12,833 after 0.13 s; 13,119 with 4, 12,833 with 16 and with 32, after twice the time."""
_Key = TypeVar("_Key", Kind, Once)


class OrderOnCuts:
    """Searches for the cut on which an order takes the least time, by the makespan.

    ``over``: what layers take and hold; ``at``: the pipeline of a cut.
    """

    def __init__(self, over: OverCuts, at: At, seed: int) -> None:
        self._at, self._per_unit, of = at, over.per_unit, over.durations
        self._many = over.many if over.limited else None
        self._useful = over.objective == "makespan" and over.joint
        self._sums, self._first = _sums(of["times"]), _sums(of["first"] or of["times"])
        self._once = _sums(of["once"])
        layers, stages = len(of["times"][Kind.F]), over.pipeline.stages
        fit = every if self._many is None else self._many.fits
        self._moves = Moves(layers, stages, random.Random(seed), fit)

    def useful(self, schedule: Schedule) -> bool:
        """Whether it is about the makespan, and the times of its operations on all cuts are known.

        They are for alike microbatches, transfers that hold no link, single operations, durations that are sums over the layers,
        and devices that exchange the same whichever of their stages is the first and the last one.
        """
        pipeline = schedule.pipeline
        if not self._useful or pipeline.lines or tabu.unknown(pipeline) is not None or schedule.order.paired:
            return False
        own = self._durations(pipeline, np.array([ends_of(pipeline.counts)], dtype=np.int64))[0]
        given = pipeline.ticks.duration
        return bool(np.array_equal(own[given >= 0], given[given >= 0] * self._scale(pipeline)))

    def away(self, schedule: Schedule) -> Schedule | None:
        """The order of a schedule (:meth:`useful`) on a cut some moves away, whatever it holds there; ``None``: that has no room
        for a microbatch."""
        ends = self._moves.away(np.array(ends_of(schedule.pipeline.counts), dtype=np.int64))
        return self.on(schedule, counts_of(ends, self._moves.layers))

    def on(self, schedule: Schedule, counts: Counts) -> Schedule | None:
        """The order of a schedule (:meth:`useful`) on a cut, whatever it holds there; ``None``: that has no room for a
        microbatch."""
        other = self._at(counts)
        return None if other is None else retimed(schedule, other, "makespan")

    def best(self, schedule: Schedule, clock: Clock, patience: int = PATIENCE) -> Schedule:
        """The order of a schedule (:meth:`useful`) on the cut that is found for it, if that is better; else the schedule.

        Nothing beyond the limit of memory is better; anything within it is better than what is beyond it. ``patience``: ways from
        the best cut in vain before the search is over.
        """
        pipeline, timer = schedule.pipeline, OrderAtCosts(schedule.pipeline, schedule.order)
        lag = pipeline.ticks.lag * self._scale(pipeline)
        loads, exchanged = _Loads(schedule), self._exchanged(pipeline)

        def valued(ends: IntArray) -> Values:
            clock.charge(SECONDS * pipeline.index.computations * len(ends))
            lags = np.broadcast_to(lag, (len(ends), *lag.shape))
            values = timer.lengths(self._durations(pipeline, ends), lags, exchanged(ends)).makespan.astype(np.float64)
            if self._many is not None:
                values[loads.beyond(self._many, ends)] = np.inf
            return values

        ends, _ = self._moves.best(np.array(ends_of(pipeline.counts), dtype=np.int64), valued, patience, clock)
        counts = counts_of(ends, self._moves.layers)
        other = None if counts == pipeline.counts else self._at(counts)
        found = None if other is None else retimed(schedule, other, "makespan")
        if found is None or not found.within_memory:
            return schedule
        better = not schedule.within_memory or value_of(found, "makespan") < value_of(schedule, "makespan")
        return found if better else schedule

    def _scale(self, pipeline: Pipeline) -> int:
        """Ticks of all cuts in one of this cut's."""
        return self._per_unit // pipeline.ticks.per_unit

    def _durations(self, pipeline: Pipeline, ends: IntArray) -> IntArray:
        """``[cut, route, row, stage]`` in the ticks of all cuts, as :attr:`~ppopt.pipeline.Ticks.duration` has it for one."""
        at = edges(ends, self._moves.layers)
        found = np.zeros((len(ends), *pipeline.ticks.duration.shape), dtype=np.int64)
        for kind, sums in self._sums.items():
            each = sums[at[:, 1:]] - sums[at[:, :-1]]
            each[:, 0] = self._first[kind][at[:, 1]]
            found[:, :, kind] = each[:, None, :]
        found[:, :, Kind.B] = found[:, :, Kind.I] + found[:, :, Kind.W]
        return found

    def _exchanged(self, pipeline: Pipeline) -> Callable[[IntArray], tuple[IntArray, IntArray]]:
        """By cuts, ``[cut, device]``, in their ticks: what a device does before its operations, and after them. Beside what its
        layers take once per step that is what it is on the pipeline's own cut."""
        has = np.zeros((pipeline.stages, pipeline.devices), dtype=np.int64)
        for way in pipeline.ways:
            has[np.arange(pipeline.stages), way] = 1
        sums = [self._once_per_step(names) for names in ((Once.ALL_GATHER,), (Once.REDUCE_SCATTER, Once.OPTIMIZER))]

        def of_layers(ends: IntArray, side: int) -> IntArray:
            found: IntArray = np.diff(sums[side][edges(ends, self._moves.layers)], axis=1) @ has
            return found

        own, rest = np.array([ends_of(pipeline.counts)], dtype=np.int64), np.zeros((2, pipeline.devices), dtype=np.int64)
        for side, table in enumerate((pipeline.ticks.lead, pipeline.ticks.tail)):
            rest[side, pipeline.device_of[0]] = table[0, Kind.F] * self._scale(pipeline)
            rest[side] -= of_layers(own, side)[0]
        return lambda ends: (of_layers(ends, 0) + rest[0], of_layers(ends, 1) + rest[1])

    def _once_per_step(self, names: Iterable[Once]) -> IntArray:
        """What the layers before each one take once per step, in the ticks of all cuts."""
        found = np.zeros(self._moves.layers + 1, dtype=np.int64)
        for name in names:
            found += self._once.get(name, 0)
        return found


class _Loads:
    """How many microbatches of each stage a device holds while each forward of an order runs.

    ``device``: that of each row of ``often``, which has the microbatches that are held as a whole, stage by stage, then those
    of which ``W`` is left. Where an input gradient takes more than it gives back, more is held than they say.
    """

    def __init__(self, schedule: Schedule) -> None:
        index, stages = schedule.order.index, schedule.pipeline.stages
        rows = list[IntArray]()
        for numbers in schedule.order.rows:
            kind, stage = np.divmod(numbers // index.microbatches, stages)
            change, each = np.zeros((len(numbers), 2 * stages), dtype=np.int64), np.arange(len(numbers))
            change[each, stage] = np.where(kind == Kind.F, 1, np.where(kind == Kind.W, 0, -1))
            change[each, stages + stage] = np.where(kind == Kind.I, 1, np.where(kind == Kind.W, -1, 0))
            rows.append(np.unique(np.cumsum(change, axis=0)[kind == Kind.F], axis=0))
        self.often = np.concatenate(rows)
        self.device = np.repeat(np.arange(len(rows)), list(map(len, rows)))

    def beyond(self, many: ManyCuts, ends: IntArray) -> npt.NDArray[np.bool_]:
        """On which cuts some device holds more than it has room for."""
        held, kept, own = many.held(ends)
        always = np.column_stack([own[:, many.device_of == device].sum(axis=1) for device in range(len(many.room))])
        load = np.concatenate([held, kept], axis=1) @ self.often.T + always[:, self.device]
        found: npt.NDArray[np.bool_] = np.any(load > np.array(many.room)[self.device], axis=1)
        return found


def _sums(times: dict[_Key, list[int]]) -> dict[_Key, IntArray]:
    return {kind: np.concatenate(([0], np.cumsum(of))).astype(np.int64) for kind, of in times.items()}
