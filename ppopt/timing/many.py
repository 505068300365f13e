"""One order at many costs at once: how long it takes under each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ppopt.compiled import loop
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Order, of_stages
from ppopt.timing.demands import NO_DEMANDS
from ppopt.timing.timed import Swept, _devices, _flat, _impossible, _positions, _waits, swept


class Lengths(NamedTuple):
    """How long an order takes under each setting of the costs, in the ticks in which these are given."""

    makespan: IntArray
    """``[setting]``."""
    device_spans: IntArray
    """``[setting, device]``; 0: the device is idle throughout."""


class OrderAtCosts:
    """An order that is timed under many settings of the costs, as often as it is asked for (:func:`time_settings`).

    Raises:
        OrderError: the order cannot be timed.
        ValueError: transfers hold links, or operations run as overlapped pairs, whose times do not follow from these numbers.
    """

    def __init__(self, pipeline: Pipeline, order: Order) -> None:
        if pipeline.ticks.pauses:
            problem = "what is exchanged between the passes of a device (data_parallel.per_pass) is not timed at many costs"
            raise ValueError(problem)
        if pipeline.lines or order.paired:
            problem = "only an order of single operations, where no transfer holds a link, is timed at many costs at once"
            raise ValueError(problem)
        numbers, offsets = _flat(pipeline, order)
        found = swept(pipeline, numbers, offsets, traced=True)
        if not isinstance(found, Swept):
            raise _impossible(pipeline, numbers, offsets, NO_DEMANDS)
        family, microbatch = np.divmod(numbers, pipeline.microbatches)
        family = family + pipeline.route_by_microbatch[microbatch] * (pipeline.index.rows * pipeline.stages)
        places = _places(pipeline, numbers, offsets, found.sequence)
        lead, tail = (of_stages(pipeline, numbers, table) for table in (pipeline.ticks.lead, pipeline.ticks.tail))
        self.pipeline, self._families, self._runs = pipeline, np.unique(family), np.diff(offsets) > 0
        self._rows = (family[found.sequence], *places)
        self._lead, self._tail = lead[found.sequence], tail[found.sequence]

    def lengths(
        self, duration: IntArray, lag: IntArray | None = None, exchanged: tuple[IntArray, IntArray] | None = None
    ) -> Lengths:
        """The makespans and device spans; the arguments are those of :func:`time_settings`.

        ``exchanged``: ``[setting, device]``, in ticks, what a device does before its first operation, and after its last one; by
        default what the pipeline says.

        Raises:
            ValueError: an array has another shape, or a negative duration of something that is run.
        """
        pipeline, settings = self.pipeline, len(duration)
        lag = np.broadcast_to(pipeline.ticks.lag, (settings, *pipeline.ticks.lag.shape)) if lag is None else lag
        tables = pipeline.ticks.duration.shape
        for name, given, expected in (("duration", duration, tables), ("lag", lag, pipeline.ticks.lag.shape)):
            if given.shape != (settings, *expected):
                raise ValueError(f"{name}: expected an array of the shape {(settings, *expected)}, got {given.shape}")
        if settings and (int(duration.reshape(settings, -1)[:, self._families].min(initial=0)) < 0 or int(lag.min()) < 0):
            raise ValueError("duration, lag: expected numbers >= 0")
        count = len(self._rows[0])
        begin, end = (np.zeros(settings * pipeline.devices, np.int64) for _ in range(2))
        longest = int(duration.max(initial=0)) + int(lag.max(initial=0))
        between = np.where(np.eye(pipeline.devices, dtype=bool), 0, lag)
        costs = np.ascontiguousarray(duration, np.int64).ravel(), np.ascontiguousarray(between, np.int64).ravel()
        sizes = settings, pipeline.devices, duration[0].size if settings else 0
        own, each = (self._lead, self._tail), tuple(np.zeros((2, settings, pipeline.devices), np.int64))
        if exchanged is not None:
            own, each = (np.zeros(count, np.int64),) * 2, exchanged
        beside = *own, *(np.ascontiguousarray(of, np.int64).ravel() for of in each)
        most = (count + 1) * longest + sum(int(of.max(initial=0)) for of in beside)
        lengths(settings * count, most, sizes, self._rows, costs, beside, begin, end)
        starts, ends = (column.reshape(settings, pipeline.devices)[:, self._runs] for column in (begin, end))
        return Lengths(ends.max(axis=1) - starts.min(axis=1), (end - begin).reshape(settings, pipeline.devices))


def time_settings(pipeline: Pipeline, order: Order, duration: IntArray, lag: IntArray | None = None) -> Lengths:
    """The makespans and device spans of an order under many settings of the costs: those of :func:`~ppopt.timing.time_order`,
    much faster than one after the other.

    ``duration``: ``[setting, route, row, stage]``, in ticks, as :attr:`~ppopt.pipeline.Ticks.duration` has it for one. ``lag``:
    ``[setting, from, to]``, from the end of an operation on a device until its result is on another (the diagonal counts
    nothing); by default the pipeline's in every setting. All else is the pipeline's own; so what comes before and after the
    operations of a device is in its ticks. An order that is timed again and again is prepared once (:class:`OrderAtCosts`).

    Raises:
        OrderError: the order cannot be timed.
        ValueError: an array has another shape, or a negative duration of something that is run; transfers hold links, or
            operations run as overlapped pairs, whose times do not follow from these numbers.
    """
    return OrderAtCosts(pipeline, order).lengths(duration, lag)


def _places(pipeline: Pipeline, numbers: IntArray, offsets: IntArray, sequence: IntArray) -> Sequence[IntArray]:
    """By place in the ``sequence`` its device, and where its waits begin; by wait a place before it, and the place of its lag.

    A place waits for the one before it on its device, and for the data from others; what comes earlier on its device has ended.
    """
    device, turn = _devices(offsets), np.empty(len(numbers), np.int64)
    turn[sequence] = np.arange(len(numbers))
    waits = _waits(pipeline, _positions(pipeline, numbers, device), NO_DEMANDS)
    remote = device[waits.before] != device[waits.after]
    own = np.setdiff1d(np.arange(len(numbers)), offsets)
    before, after = (np.concatenate(column) for column in ((own - 1, waits.before[remote]), (own, waits.after[remote])))
    by_turn = np.argsort(turn[after], kind="stable")
    before, after = before[by_turn], after[by_turn]
    first = np.searchsorted(turn[after], np.arange(len(numbers) + 1))
    return device[sequence], first, turn[before], device[before] * pipeline.devices + device[after]


@loop(1e-6, ("begin", "end"))
def lengths(sizes: Any, rows: Any, costs: Any, beside: Any, begin: Any, end: Any) -> None:
    """When each device begins and ends under each setting; :class:`OrderAtCosts` has the arguments. ``beside``: what is done
    before and after the operations of a device, by place where they are its first or last, and by setting and device."""
    settings, devices, families = sizes
    family, device, first, before, lag_of = rows
    duration, lag = costs
    lead, tail, early, late = beside
    ended = [0] * len(family)
    for setting in range(settings):
        costs_at, lags_at, at = setting * families, setting * devices * devices, setting * devices
        for d in range(devices):
            begin[at + d] = -1
        for i in range(len(family)):
            d = at + device[i]
            gone = lead[i] + early[d]
            time = gone
            for j in range(first[i], first[i + 1]):
                time = max(time, ended[before[j]] + lag[lags_at + lag_of[j]])
            if begin[d] < 0 or time - gone < begin[d]:
                begin[d] = time - gone
            time += duration[costs_at + family[i]]
            ended[i] = time
            end[d] = max(end[d], time + tail[i] + late[d])
        for d in range(devices):
            begin[at + d] = max(begin[at + d], 0)
