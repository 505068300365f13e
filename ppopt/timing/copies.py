"""When activations are copied to the host and back: an order says nothing of that.

Copies out are made as early, copies in as late as their engine allows, so that as little as possible is held. What the times of
the computations leave no time for waits, or is not copied where that is open. Nor is then what the host has no room for.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from ppopt.constraints import Word, operations, rules_of
from ppopt.constraints.words import Family
from ppopt.op import COPIES, Kind, Send
from ppopt.pipeline import IntArray, Pipeline
from ppopt.pipeline.offload import copied
from ppopt.schedule import NO_TRANSFERS, Schedule, Transfers, durations, memory_changes_over_time
from ppopt.timing.demands import NO_DEMANDS, Demands, settled, when
from ppopt.timing.links import FloatArray, begun, in_turn, made
from ppopt.timing.sail import Copy, sail


def copies_in(schedule: Schedule) -> list[Copy]:
    """All that may be copied in a schedule, by the end of its forward; ``needed`` has the margin taken off."""
    pipeline = schedule.pipeline
    start, end = when(schedule)
    found = []
    for route, stage in np.argwhere(pipeline.ticks.copying[:, 0] >= 0).tolist():
        forward, full, input_ = (operations(pipeline, Family(stage, kind, route)) for kind in (Kind.F, Kind.B, Kind.I))
        out, back = (operations(pipeline, Family(stage, send, route)) for send in COPIES)
        first = np.maximum(start[full], start[input_]) - int(pipeline.ticks.margin[route, stage])
        takes = tuple(pipeline.ticks.copying[route, :, stage].tolist())
        columns = (out.tolist(), back.tolist(), end[forward].tolist(), first.tolist())
        device = pipeline.routes[route][stage]
        found += [Copy(o, b, device, since, until, takes) for o, b, since, until in zip(*columns, strict=True)]
    return sorted(found, key=lambda copy: (copy.made, copy.out))


def forced(pipeline: Pipeline) -> tuple[set[int], set[int]]:
    """The numbers of the copies out that have to be made, and of those that are open."""
    must, may = set[int](), set[int]()
    for route, stage in np.argwhere(pipeline.ticks.copying[:, 0] >= 0).tolist():
        which = copied(pipeline, route, stage)
        slots = (Send.OFFLOAD * pipeline.stages + stage) * pipeline.microbatches
        if which is None:
            may |= {slots + m for m in pipeline.microbatches_of[route].tolist()}
        else:
            must |= {slots + m for m in which}
    return must, may


def with_copies(schedule: Schedule, demands: Demands = NO_DEMANDS) -> Schedule:
    """A schedule without copies, with those that the pipeline asks for, and where some are open, such that it fits the memory.

    First as its computations are, with what their times leave room for. Where that does not fit the memory, the computations
    wait: whoever claims memory, until enough is given back. If nothing fits, the first, where copies that are open keep to the
    limit of the host, those that have to be made may exceed it.
    """
    pipeline = schedule.pipeline
    must, may = forced(pipeline)
    every = copies_in(schedule)
    if pipeline.offload is not None and pipeline.offload.stages == "sail":
        return _timed(schedule, sail(pipeline, every, schedule), demands) or schedule
    if not must and schedule.within_memory:
        return schedule
    times = _times(pipeline, every, must, may)
    first = times if pipeline.amounts.host is None else _on_host(pipeline, every, must, may, times)
    gentle = _timed(schedule, first, demands) or _timed(schedule, _between(pipeline, every, must), demands)
    if gentle is not None and gentle.within_memory:
        return gentle
    long = {copy.out for copy in every if copy.needed - copy.made >= sum(copy.takes)}
    for which in (must | may, must | (may & long)):
        found = fitted(schedule, _times(pipeline, every, which, ()), demands)
        if found is not None:
            return found
    fewer = None if first is times else fitted(schedule, first, demands)
    return fewer or gentle or schedule


def _on_host(
    pipeline: Pipeline, every: Sequence[Copy], must: Collection[int], may: Collection[int], times: FloatArray
) -> FloatArray:
    """The ``times`` of copies (:func:`_times`), of those that may be made only such as the host has room for, the first first.

    Without the others engines are free earlier, and the copies that are left are made anew, as long as that changes anything.
    """
    kept = set(may)
    while may:
        room, held, gone = pipeline.amounts.host or 0, 0, list[tuple[int, int]]()
        chosen = set[int]()
        for copy in sorted((copy for copy in every if not np.isnan(times[copy.out])), key=lambda copy: int(times[copy.out])):
            while gone and gone[0][0] <= times[copy.out]:
                held -= heapq.heappop(gone)[1]
            amount = _moved(pipeline, copy.out)
            if held + amount <= room:
                held += amount
                chosen.add(copy.out)
                heapq.heappush(gone, (int(times[copy.back]) + copy.takes[1], amount))
        if chosen == kept:
            break
        kept = chosen
        times = _times(pipeline, every, must, kept)
    return times


def _moved(pipeline: Pipeline, out: int) -> int:
    """What a copy out moves, by its number."""
    family, microbatch = divmod(out, pipeline.microbatches)
    return int(pipeline.amounts.away[pipeline.route_of_microbatch[microbatch], family % pipeline.stages])


def _between(pipeline: Pipeline, every: Sequence[Copy], must: Collection[int]) -> FloatArray:
    """Times of the copies that have to be made such that nothing waits for itself: where forwards end and backwards start.

    That is the order of a schedule whose copies take no time. Where engines are late, another one may run in a circle: a copy in
    before a copy out whose own copy in comes, with its backward, before the forward that the first is of.
    """
    times = np.full(pipeline.index.size, np.nan)
    for copy in every:
        if copy.out in must:
            times[copy.out], times[copy.back] = copy.made, max(copy.made, copy.needed)
    return times


def _times(pipeline: Pipeline, every: Sequence[Copy], must: Collection[int], may: Collection[int]) -> FloatArray:
    """By number when copies begin: those that have to be made, and those of the others for which there is time. NaN: others."""
    times = np.full(pipeline.index.size, np.nan)
    busy: dict[tuple[int, Send], list[tuple[int, int]]] = {}
    for engine in pipeline.engines:
        row: list[tuple[int, int]] = []
        busy |= {(device, send): row for device in engine.devices for send in engine.sends}
    chosen = [copy for copy in every if copy.out in must or copy.out in may]
    out_end: dict[int, int] = {}
    for copy in chosen:
        begin = _earliest(busy[copy.device, Send.OFFLOAD], copy.made, copy.takes[0])
        if copy.out in may and begin + copy.takes[0] + copy.takes[1] > copy.needed:
            continue
        insort(busy[copy.device, Send.OFFLOAD], (begin, begin + copy.takes[0]))
        times[copy.out], out_end[copy.out] = begin, begin + copy.takes[0]
    for copy in sorted((copy for copy in chosen if copy.out in out_end), key=lambda copy: -copy.needed):
        begin = _latest(busy[copy.device, Send.RELOAD], copy.needed, copy.takes[1])
        if begin < out_end[copy.out] and copy.out in may:
            times[copy.out] = np.nan
            continue
        insort(busy[copy.device, Send.RELOAD], (begin, begin + copy.takes[1]))
        times[copy.back] = max(begin, out_end[copy.out])
    return times


def _earliest(busy: Sequence[tuple[int, int]], since: int, takes: int) -> int:
    """The earliest time from ``since`` on at which an engine is free for so long; ``busy``: one behind the other, in order."""
    for place in range(max(bisect_left(busy, (since,)) - 1, 0), len(busy)):
        begin, end = busy[place]
        if begin >= since + takes:
            break
        since = max(since, end)
    return since


def _latest(busy: Sequence[tuple[int, int]], until: int, takes: int) -> int:
    """The latest time from which on an engine is free for so long, up to ``until``; ``busy``: one behind the other, in order."""
    for place in range(bisect_left(busy, (until,)) - 1, -1, -1):
        begin, end = busy[place]
        if end <= until - takes:
            break
        until = min(until, begin)
    return until - takes


def _timed(schedule: Schedule, copies: FloatArray, demands: Demands) -> Schedule | None:
    """The earliest times with these copies, made in the order of their times; ``None``: something waits for itself."""
    times = begun(replace(schedule, copies=NO_TRANSFERS))
    chosen = ~np.isnan(copies)
    times[chosen] = copies[chosen]
    try:
        return reloaded_late(in_turn(schedule.pipeline, schedule.order, times, demands))
    except ValueError:
        return None


def fitted(schedule: Schedule, copies: FloatArray, demands: Demands = NO_DEMANDS) -> Schedule | None:
    """The earliest times with these copies within the memory, where whoever claims memory waits; ``None``: that is no way."""
    found = _timed(schedule, copies, demands)
    for _ in range(4):  # who goes first is taken from times that wait already, which settles soon or not at all
        if found is None or found.within_memory:
            return found
        more = settled_memory(schedule.pipeline, *when(found))
        found = _timed(found, _copies_of(found), demands + more)
    return None


def _copies_of(schedule: Schedule) -> FloatArray:
    times = np.full(schedule.pipeline.index.size, np.nan)
    for row, start in zip(*schedule.copies, strict=True):
        times[row] = start
    return times


def settled_memory(pipeline: Pipeline, start: IntArray, end: IntArray, words: Iterable[Word] = ()) -> Demands:
    """Waits that keep the limits of memory where copies give back and claim, and the ``words``, in the order of these times."""
    return settled(pipeline, (*rules_of(pipeline), *words), start, end)


def reloaded_late(schedule: Schedule) -> Schedule:
    """The same schedule with every copy in as late as its backward and its engine allow; nothing else moves, devices hold less.

    Where the host has no room for that, as it is.
    """
    pipeline = schedule.pipeline
    needed = {copy.back: copy.needed for copy in copies_in(schedule)}
    if not needed or not any(map(len, schedule.copies.rows)):
        return schedule
    starts = []
    for row, start in zip(*schedule.copies, strict=True):
        later, free = start.copy(), np.iinfo(np.int64).max
        takes = durations(pipeline, row).tolist()
        for place in range(len(row) - 1, -1, -1):
            if int(row[place]) in needed:
                later[place] = max(later[place], min(needed[int(row[place])], free) - takes[place])
            free = int(later[place])
        starts.append(later)
    moved = replace(schedule, copies=Transfers(schedule.copies.rows, tuple(starts)))
    host = pipeline.amounts.host
    return schedule if host is not None and moved.host_peak > max(host, schedule.host_peak) else moved


def with_spare(schedule: Schedule) -> Schedule:
    """The same times with all open copies besides for which they leave room on the engines; where the host has none, as it is."""
    pipeline = schedule.pipeline
    may = forced(pipeline)[1]
    times = _copies_of(schedule)
    busy: dict[tuple[int, Send], list[tuple[int, int]]] = {}
    for engine, row in zip(pipeline.engines, made(pipeline, times), strict=True):
        start = times[row].astype(np.int64)
        spans = list(zip(start.tolist(), (start + durations(pipeline, row)).tolist(), strict=True))
        busy |= {(device, send): spans for device in engine.devices for send in engine.sends}
    for copy in copies_in(schedule):
        if copy.out not in may or not np.isnan(times[copy.out]):
            continue
        ways = busy[copy.device, Send.OFFLOAD], busy[copy.device, Send.RELOAD]
        out, back = _earliest(ways[0], copy.made, copy.takes[0]), _latest(ways[1], copy.needed, copy.takes[1])
        if out + copy.takes[0] <= back:
            for way, begin, takes in zip(ways, (out, back), copy.takes, strict=True):
                insort(way, (begin, begin + takes))
            times[copy.out], times[copy.back] = out, back
    rows = made(pipeline, times)
    more = replace(schedule, copies=Transfers(rows, tuple(times[row].astype(np.int64) for row in rows)))
    return more if more.within_memory else schedule


def without_needless(schedule: Schedule) -> Schedule:
    """The same times without open copies that the limits of memory do not need, looked at one by one."""
    pipeline = schedule.pipeline
    may = forced(pipeline)[1]
    if not may or not schedule.within_memory:
        return schedule
    limit = pipeline.amounts.limit
    if limit is None:
        return _without(schedule, may)
    slots = pipeline.index.stages * pipeline.index.microbatches
    levels: dict[int, IntArray] = {}
    away: dict[int, tuple[int, int, int]] = {}  # by copy out: its device, between which of that device's changes
    for device in range(pipeline.devices):
        changes = memory_changes_over_time(schedule, device)
        levels[device] = changes.held
        places = {number: place for place, number in enumerate(changes.copies.tolist()) if number >= 0}
        away |= {number: (device, place, places[number + slots]) for number, place in places.items() if number in may}
    needless = set[int]()
    for row in schedule.copies.rows:
        for number in row.tolist():
            if number in away:
                device, out, back = away[number]
                meanwhile, amount = levels[device][out:back], _moved(pipeline, number)
                if meanwhile.max(initial=0) + amount <= limit[device]:
                    meanwhile += amount
                    needless.add(number)
    return _without(schedule, needless)


def _without(schedule: Schedule, outs: Collection[int]) -> Schedule:
    slots = schedule.pipeline.index.stages * schedule.pipeline.index.microbatches
    gone = np.array([number for out in outs for number in (out, out + slots)], dtype=np.int64)
    kept = [~np.isin(row, gone) for row in schedule.copies.rows]
    rows, starts = (tuple(of[some] for of, some in zip(column, kept, strict=True)) for column in schedule.copies)
    return replace(schedule, copies=Transfers(rows, starts))
