"""Whether a schedule breaks no rule, found out in one go: most break none, and only of the others it has to be said which.

What is quick to tell is told here: whole operations that take time, listed in the order of their starts, and the transfers that
hold links. Of everything else nothing is said, and the rules are read one by one (:mod:`ppopt.checker.rules`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ppopt.checker.facts import facts_of
from ppopt.checker.microbatches import misplaced
from ppopt.checker.quick_transfers import NOT_RUN, Ran, transfers_sound
from ppopt.checker.records import Run, read_schedule
from ppopt.checker.waits import edges
from ppopt.compiled import MOST, loop
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Schedule

READ = 8e-6
"""Seconds for each operation and transfer where the rules are read one by one. Measured: 1.7 s for 325,000 of them on an idle
machine, 2.8 s on a busy one."""


DIFFER = 1.2e-4
"""Seconds for each stage of each route where microbatches differ: to read what they take. Measured: 1.9 s for 16,384 of them."""


def seconds_to_read(pipeline: Pipeline) -> float:
    """About how long it takes to check a schedule whose rules are read one by one, or whose microbatches differ; 0 else, as it is
    told in one go."""
    differ = DIFFER * pipeline.stages * len(pipeline.routes) if pipeline.mix.differs else 0.0
    instant = (pipeline.ticks.duration == 0).any() or (pipeline.ticks.overlap == 0).any()
    if not instant and pipeline.offload is None and pipeline.costs.weight_pieces == 1:
        return differ
    return differ + READ * (len(Kind) + pipeline.costs.weight_pieces) * pipeline.stages * pipeline.microbatches


def sound(pipeline: Pipeline, schedule: Schedule) -> bool:
    """Whether a schedule certainly breaks no rule; ``False`` says nothing."""
    if pipeline.offload is not None or pipeline.costs.weight_pieces > 1:
        return False
    order, per_unit = schedule.order, schedule.pipeline.ticks.per_unit
    facts = facts_of(pipeline, per_unit)
    held = any(map(any, (*facts.up_held, *facts.down_held)))
    sent = schedule.transfers
    if facts.per_pass or any(0 in row for row in (*facts.duration, *facts.overlap)) or any(map(len, schedule.copies.rows)):
        return False
    if pipeline.backward_routes and (facts.limit is not None or held):  # what a device holds then is not told by its own order
        return False
    if (not held and any(map(len, sent.rows))) or list(map(len, sent.rows)) != list(map(len, sent.start)):
        return False
    if order.index != pipeline.index or not len(order.rows) == len(schedule.start) == pipeline.devices:
        return False
    if [len(row) for row in order.rows] != [len(row) for row in schedule.start]:
        return False
    numbers, starts = np.concatenate(order.rows), np.concatenate(schedule.start)
    factor = facts.per_time // per_unit
    amounts = facts.activation, facts.retained, [facts.static], [facts.limit or []], facts.working
    hops = facts.up, facts.down, facts.up_held, facts.down_held
    times = facts.duration, facts.overlap, *hops, facts.over, facts.gather
    largest = max(1, *(abs(x) for table in (*times, *amounts) for row in table for x in row))
    none = np.empty(0, np.int64)
    transfers, begun = np.concatenate((none, *sent.rows)), np.concatenate((none, *sent.start))
    latest = max(int(starts.max(initial=0)), int(begun.max(initial=0)))
    most = max(latest * factor, 1) + 4 * largest * (len(numbers) + 1)
    if most >= MOST or len(numbers) == 0 or int(starts.min()) < 0 or int(begun.min(initial=0)) < 0:
        return False
    rows = numbers, starts * factor, np.cumsum([0, *map(len, order.rows)])
    place = _array([pipeline.route_of_microbatch]), _array(facts.place)
    waits = [
        (route, *(kind * pipeline.stages + stage for kind, stage in (edge.before, edge.after)), edge.lag)
        for route in range(len(pipeline.routes))
        for edge in edges(Run(pipeline, facts, 0, [], [], [], []), route)
    ]
    columns = tuple(_array([column]) for column in zip(*waits, strict=True))
    memory = (*map(_array, amounts),)
    took = _array(facts.duration), _array(facts.overlap), _array(facts.gather)
    sizes = pipeline.stages, pipeline.microbatches
    if pipeline.mix.differs and any(misplaced(read_schedule(pipeline, schedule))):
        return False
    start, end = np.full((2, len(Kind) * pipeline.stages * pipeline.microbatches), NOT_RUN)
    if not keeps_all_rules(len(numbers), most, sizes, rows, place, columns, took, memory, start, end):
        return False
    return not held or transfers_sound(pipeline, facts, transfers, begun * factor, _ran(schedule, rows, start, end))


def _ran(schedule: Schedule, rows: tuple[IntArray, IntArray, IntArray], start: IntArray, end: IntArray) -> Ran:
    """What computes when, for the transfers."""
    numbers, starts, offsets = rows
    index = schedule.order.index
    paired = numbers >= index.size
    ends = end[np.where(paired, (numbers - index.size) // (index.stages * index.microbatches), numbers)]
    return Ran(start, end, [(starts[a:b], ends[a:b]) for a, b in pairwise(offsets.tolist())])


def _array(rows: Any) -> Any:
    return np.array([x for row in rows for x in row], dtype=np.int64)


def change(kind: int, activation: int, retained: int, working: int) -> tuple[int, int]:
    """What an operation takes at its start, and gives back at its end."""
    most = max(activation, retained)
    if kind == 0:
        return activation, 0
    if kind == 1:
        return working, activation + working
    return (most - activation + working, most - retained + working) if kind == 2 else (working, retained + working)


def whole(slots: int, start: Any) -> bool:
    """Whether of every stage and microbatch a forward runs, and a backward in one way."""
    for slot in range(slots):
        full, split = start[slots + slot] >= 0, start[2 * slots + slot] >= 0
        if start[slot] < 0 or full == split or split != (start[3 * slots + slot] >= 0):
            return False
    return True


def in_time(microbatches: int, route_of: Any, waits: Any, start: Any, end: Any) -> bool:
    """Whether nothing starts before what it waits for is there."""
    routes, before, after, lag = waits
    for i in range(len(routes)):
        for microbatch in range(microbatches):
            if route_of[microbatch] == routes[i]:
                begun = start[after[i] * microbatches + microbatch]
                ended = end[before[i] * microbatches + microbatch]
                if begun >= 0 and ended >= 0 and begun < ended + lag[i]:
                    return False
    return True


@loop(2.5e-6, ("start", "end"), (change, whole, in_time))
def keeps_all_rules(sizes: Any, rows: Any, place: Any, waits: Any, took: Any, memory: Any, start: Any, end: Any) -> bool:
    """Whether every operation runs once, on its device, one after the other, behind what it waits for, within the memory.

    ``start`` and ``end``: those of each single operation by its number are written down, :data:`NOT_RUN`: it is not run.

    ``sizes``: stages and microbatches. ``rows``: the numbers of all operations, their starts, and where each device begins.
    ``place``: the route by microbatch, the device ``[route, kind, stage]``. ``waits``: route, family before, family after, lag.
    ``took``: the duration ``[route, kind, stage]``, of a pair ``[route, stage]``, and before the first operation
    ``[route, kind, stage]``. ``memory``: what is held until the backward and until W ``[route, stage]``, and always, the limit
    (none: empty), and while a backward runs ``[route, device]``.
    """
    stages, microbatches = sizes
    numbers, starts, offsets = rows
    route_of, home = place
    duration, overlap, gather = took
    activation, retained, static, limit, working = memory
    slots = stages * microbatches
    devices = len(offsets) - 1
    for d in range(len(offsets) - 1):
        free = 0
        held = static[d]
        for at in range(offsets[d], offsets[d + 1]):
            first = numbers[at]
            second = -1
            if first >= 8 * slots:
                second = slots + (first - 8 * slots) % slots
                first = (first - 8 * slots) // slots
            if first < 0 or first >= (slots if second >= 0 else 4 * slots):
                return False
            if start[first] >= 0 or (second >= 0 and start[second] >= 0):
                return False
            begun = starts[at]
            route = route_of[first % microbatches]
            stage = first // microbatches % stages
            family = route * 4 * stages + first // microbatches
            length = duration[family]
            if begun < free or begun < gather[family] or home[family] != d or length < 0:
                return False
            slot = route * stages + stage
            more, back = change(first // slots, activation[slot], retained[slot], working[route * devices + d])
            held += more
            if second >= 0:
                route = route_of[second % microbatches]
                other = route * stages + second // microbatches % stages
                family = route * 4 * stages + second // microbatches
                longer = duration[family]
                if longer < 0 or home[family] != d or begun < gather[family]:
                    return False
                length = overlap[slot] if overlap[slot] >= 0 else length + longer
                held += working[route * devices + d]
                back += activation[other] + working[route * devices + d]
                start[second] = begun
                end[second] = begun + length
            if len(limit) > 0 and held > limit[d]:
                return False
            held -= back
            free = begun + length
            start[first] = begun
            end[first] = free
    return whole(slots, start) and in_time(microbatches, route_of, waits, start, end)
