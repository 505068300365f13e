"""An order, timed: every operation starts as early as its device's order, the data and the links allow.

An order says nothing about transfers; those that hold a link are run first come, first served (:mod:`ppopt.timing.links`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppopt.constraints import Word, data_of, expand
from ppopt.op import Kind
from ppopt.pipeline import DataParallel, IntArray, Pipeline
from ppopt.schedule import Order, Schedule, durations, halves, of_stages
from ppopt.timing.demands import NO_DEMANDS, Demands, demands_of, settled, when
from ppopt.timing.links import begun, first_come, in_turn


class OrderError(ValueError):
    """An order that no times can be given to."""


class CyclicOrder(OrderError):
    """An order in which operations wait for each other. ``cycle`` lists them, each waiting for the next."""

    def __init__(self, cycle: list[str]) -> None:
        super().__init__(f"the order deadlocks: {' waits for '.join([*cycle, cycle[0]])}")
        self.cycle = cycle


def time_order(
    pipeline: Pipeline,
    order: Order,
    guess: Sequence[IntArray] | None = None,
    *,
    words: Iterable[Word] = (),
    demands: Demands = NO_DEMANDS,
) -> Schedule:
    """The earliest times of an order, transfers first come, first served. Linear in the number of operations.

    ``words`` bind beside the rules: their waits between devices and of some length are waited for. Where they say more than an
    order and waits can (an ``Exclusive`` or a ``Capacity`` between devices), who goes first is taken from the times without that.
    So all these words hold, but for those about one device alone, which the order itself keeps or not. ``demands`` are further
    waits.

    ``guess``: starts, a row per device, that may well be the earliest; whether they are is found out many times faster (where
    no transfer holds a link; else the guess is not looked at).

    Raises:
        OrderError: an operation is missing, run twice, or on another device than its stage.
        CyclicOrder: operations wait for each other.
    """
    words = tuple(words)
    if words:
        demands += demands_of(pipeline, words)
        schedule = time_order(pipeline, order, guess, demands=demands)
        more = settled(pipeline, words, *when(schedule))
        return time_order(pipeline, order, demands=demands + more) if more else schedule
    numbers, offsets = _flat(pipeline, order)
    device = np.repeat(np.arange(pipeline.devices), np.diff(offsets))
    position = _positions(pipeline, numbers, device)
    waits = _waits(pipeline, position, demands)
    local = device[waits.before] == device[waits.after]
    late = local & (waits.before >= waits.after)
    if late.any():
        first = int(np.flatnonzero(late)[0])
        raise CyclicOrder(_texts(pipeline, numbers, (int(waits.after[first]), int(waits.before[first]))))
    remote = Waits(*(column[~local | (waits.lag > 0)] for column in waits))
    duration = durations(pipeline, numbers)
    if (
        guess is not None
        and not pipeline.lines
        and not pipeline.ticks.lead.any()
        and _are_earliest(np.concatenate(guess), duration, offsets, remote)
    ):
        return Schedule(pipeline, order, tuple(guess))
    earliest = of_stages(pipeline, numbers, pipeline.ticks.lead)
    start = _sweep(duration.tolist(), offsets.tolist(), device.tolist(), remote, earliest.tolist())
    if isinstance(start, int):
        raise CyclicOrder(_texts(pipeline, numbers, _cycle(start, offsets, device, remote)))
    if pipeline.lines:
        return first_come(pipeline, order, position, demands)
    times = np.array(start, dtype=np.int64)
    return Schedule(pipeline, order, tuple(times[a:b] for a, b in pairwise(offsets)))


def exposed_traffic(schedule: Schedule) -> int:
    """By how many ticks the devices' all-gathers and reduce-scatters lengthen the makespan of a schedule's own orders."""
    pipeline = schedule.pipeline
    if not pipeline.ticks.margins:
        return 0
    alone = pipeline.flat()  # layers would bring theirs again
    without = alone.changed(data_parallel=DataParallel(), route_of_microbatch=pipeline.route_of_microbatch)
    order = schedule.order
    other = in_turn(without, order, begun(schedule)) if pipeline.lines else time_order(without, order)
    return schedule.makespan - int(Fraction(other.makespan, without.ticks.per_unit) * pipeline.ticks.per_unit)


class Waits(NamedTuple):
    """``after`` starts at least ``lag`` after ``before`` ends; places in the concatenation of all devices' rows."""

    before: IntArray
    after: IntArray
    lag: IntArray


def _flat(pipeline: Pipeline, order: Order) -> tuple[IntArray, IntArray]:
    """All operations in one array, and where the row of each device begins in it."""
    if order.index != pipeline.index or len(order.rows) != pipeline.devices:
        given = (len(order.rows), *order.index)
        expected = (pipeline.devices, *pipeline.index)
        raise OrderError(f"the order is for (devices, stages, microbatches) = {given}; the pipeline has {expected}")
    return np.concatenate(order.rows), np.cumsum([0, *map(len, order.rows)])


def _positions(pipeline: Pipeline, numbers: IntArray, device: IntArray) -> IntArray:
    """For the number of each single operation its place in ``numbers``, -1 where it is not run."""
    index = pipeline.index
    places = np.arange(len(numbers))
    first, second = halves(index, numbers)
    paired = second >= 0
    ops, places = np.concatenate((first, second[paired])), np.concatenate((places, places[paired]))
    position = np.full(index.size, -1, dtype=np.int64)
    position[ops] = places
    twice = position[ops] != places
    if twice.any():
        raise OrderError(f"{index.op(int(ops[twice][0]))} is run twice")
    table = position[: index.computations].reshape(4, index.stages, index.microbatches)
    present = table >= 0
    split = present[Kind.I] | present[Kind.W]
    for kind, missing in (
        (Kind.F, ~present[Kind.F]),
        (Kind.B, ~present[Kind.B] & ~split),
        (Kind.I, split & ~present[Kind.I]),
        (Kind.W, split & ~present[Kind.W]),
    ):
        if missing.any():
            stage, microbatch = map(int, np.argwhere(missing)[0])
            raise OrderError(f"{stage}{kind.name}{microbatch} is missing")
    if (present[Kind.B] & split).any():
        stage, microbatch = map(int, np.argwhere(present[Kind.B] & split)[0])
        raise OrderError(f"the backward {stage}B{microbatch} is also run as {stage}I{microbatch} and {stage}W{microbatch}")
    if split.any() and not pipeline.costs.split:
        stage, microbatch = map(int, np.argwhere(split)[0])
        raise OrderError(f"{stage}I{microbatch}: the costs have a fused backward only (backward alone is given)")
    expected = pipeline.device_of[pipeline.route_by_microbatch].T
    wrong = present & (device[table] != expected)
    if wrong.any():
        kind_, stage, microbatch = map(int, np.argwhere(wrong)[0])
        found = device[table[kind_, stage, microbatch]]
        op = f"{stage}{Kind(kind_).name}{microbatch}"
        raise OrderError(f"{op} is on device {found}; its stage is on device {expected[stage, microbatch]}")
    return position


def _waits(pipeline: Pipeline, position: IntArray, demands: Demands) -> Waits:
    """The data dependencies between the operations that are run, transfers taken as lags, and what else is asked for."""
    before, after, lag = map(np.concatenate, zip(expand(pipeline, data_of(pipeline, links=False)), demands, strict=True))
    before, after = position[before], position[after]
    run = (before >= 0) & (after >= 0)
    return Waits(before[run], after[run], lag[run])


def _are_earliest(start: IntArray, duration: IntArray, offsets: IntArray, waits: Waits) -> bool:
    """Whether every operation starts when the last thing that it waits for is there; nothing else does, as all take time."""
    if len(start) != len(duration) or (duration <= 0).any():
        return False
    end = start + duration
    ready = np.concatenate(([0], end[:-1]))
    ready[offsets[:-1][offsets[:-1] < len(end)]] = 0
    np.maximum.at(ready, waits.after, end[waits.before] + waits.lag)
    return bool((ready == start).all())


def _sweep(duration: list[int], offsets: list[int], device: list[int], waits: Waits, earliest: list[int]) -> list[int] | int:
    """Start times; or, where nothing can go on, the place of an operation that waits for ever.

    No operation starts before its ``earliest``. Each device runs on until it needs a result that is not there yet, and again
    once the device that makes it has moved on.
    """
    size = len(duration)
    need, lag, extra = _first_waits(size, waits)
    start, end = earliest[:], [-1] * size
    at, free = offsets[:-1], [0] * (len(offsets) - 1)
    waiting: list[list[int]] = [[] for _ in free]
    todo = list(range(len(free)))[::-1]
    while todo:
        d = todo.pop()
        place, last, time = at[d], offsets[d + 1], free[d]
        while place < last:
            ready = start[place]
            if ready < time:
                ready = time
            needed = need[place]
            if needed >= 0:
                arrival = end[needed]
                if arrival < 0:
                    waiting[device[needed]].append(d)
                    break
                arrival += lag[place]
                if arrival > ready:
                    ready = arrival
                if place in extra:
                    late = [other for other, _ in extra[place] if end[other] < 0]
                    if late:
                        waiting[device[late[0]]].append(d)
                        break
                    ready = max(ready, *(end[other] + more for other, more in extra[place]))
            start[place] = ready
            time = ready + duration[place]
            end[place] = time
            place += 1
        if place > at[d]:
            at[d], free[d] = place, time
            todo += waiting[d]
            waiting[d] = []
    stuck = [place for d, place in enumerate(at) if place < offsets[d + 1]]
    return stuck[0] if stuck else start


def _first_waits(size: int, waits: Waits) -> tuple[list[int], list[int], dict[int, list[tuple[int, int]]]]:
    """For each place one place that it needs (-1: none) and the lag; what else it needs, for the few that need more."""
    need, lag = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=np.int64)
    first, all_ = np.full(size, -1, dtype=np.int64), np.arange(len(waits.after))
    first[waits.after] = all_
    some = first[first >= 0]
    need[waits.after[some]], lag[waits.after[some]] = waits.before[some], waits.lag[some]
    other = np.flatnonzero(first[waits.after] != all_)
    extra: dict[int, list[tuple[int, int]]] = {}
    for after, before, more in zip(*(column[other].tolist() for column in (waits.after, waits.before, waits.lag)), strict=True):
        extra.setdefault(after, []).append((before, more))
    return need.tolist(), lag.tolist(), extra


def _cycle(place: int, offsets: IntArray, device: IntArray, waits: Waits) -> list[int]:
    """A cycle of places reached from one that never runs, each waiting for the next.

    What never runs waits for something that never runs: its predecessor on the device, or a result.
    """
    size = len(device)
    need: list[list[int]] = [[] for _ in range(size)]
    for after, before in zip(waits.after.tolist(), waits.before.tolist(), strict=True):
        need[after].append(before)
    first = set(offsets[:-1].tolist())
    color = [0] * size  # 0 new, 1 on the path, 2 done
    path: list[int] = []
    stack: list[tuple[int, bool]] = [(place, False)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            color[node] = 2
            path.pop()
            continue
        if color[node] == 1:
            return path[path.index(node) :]
        if color[node] == 2:
            continue
        color[node] = 1
        path.append(node)
        stack.append((node, True))
        before = [*need[node], *([] if node in first else [node - 1])]
        stack += [(needed, False) for needed in before if color[needed] != 2]
    raise AssertionError("an order that cannot run has a cycle")


def _texts(pipeline: Pipeline, numbers: IntArray, places: Iterable[int]) -> list[str]:
    return [str(pipeline.index.op(int(numbers[place]))) for place in places]
