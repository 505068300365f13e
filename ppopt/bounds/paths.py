"""A fixed order as lower bounds for whatever durations the stages have: its ways from the first operation to the last.

An operation of a fixed order starts when the one before it on its device has ended, or when its input has arrived. So a chain of
operations in which each waits for the one before takes its time on every pipeline of the same placement, number of microbatches
and links, whatever the durations are; on that pipeline on which it is the longest, it is the makespan itself.

So it is with device spans. A chain from the begin of a device to the end of another one is no longer than from the begin of the
first to the end of the second. Chains that lead round several devices, from each to the next, are together no longer than the
spans of these devices, whenever they begin.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from ppopt.bounds.certificates import Certificate
from ppopt.bounds.ways import Part, Way
from ppopt.op import Kind, Op
from ppopt.pipeline import IntArray
from ppopt.schedule import Schedule, of_stages
from ppopt.timing.paths import Paths, around, from_begin_to_end, heaviest_cycle


def longest_path(schedule: Schedule) -> Certificate:
    """What holds for the makespan of this order on every pipeline that differs in what stages take alone; here it is equal.

    Of a schedule at its earliest times, with fused backwards, on one route, without transfers that hold a link. A fused backward
    counts as ``I``.
    """
    pipeline, ticks = schedule.pipeline, schedule.pipeline.ticks
    device, rows = pipeline.routes[0], [schedule.order.ops(d) for d in range(pipeline.devices)]
    places = {op: (d, k) for d, row in enumerate(rows) for k, op in enumerate(row)}
    start, end = ([column.tolist() for column in side] for side in (schedule.start, schedule.end))
    tails = [of_stages(pipeline, row, ticks.tail).tolist() for row in schedule.order.rows]
    last = max(places.values(), key=lambda at: end[at[0]][at[1]] + tails[at[0]][at[1]])
    times: Counter[Part] = Counter()
    constant, (d, k) = tails[last[0]][last[1]], last
    while True:
        op = rows[d][k]
        assert isinstance(op, Op)
        assert op.kind in (Kind.F, Kind.B), "fused backwards"
        times[Part(Kind.F if op.kind == Kind.F else Kind.I, op.stage)] += 1
        began = start[d][k]
        if k and end[d][k - 1] == began:
            k -= 1
            continue
        before = op.stage - 1 if op.kind == Kind.F else op.stage + 1
        source = places.get(op._replace(stage=before)) if 0 <= before < pipeline.stages else None
        if source is not None:
            lag = int(ticks.lag[device[before], d])
            if end[source[0]][source[1]] + lag == began:
                constant, (d, k) = constant + lag, source
                continue
        assert began == ticks.lead[0, op.kind, op.stage], f"nothing says why {op} starts at {began}"
        return Certificate((Way(),), Way.of(times, constant + began), (Way(),))


def span_certificates(schedule: Schedule) -> list[Certificate]:
    """What holds for the device span of this order on every pipeline that differs in what stages take alone.

    One of each device alone; the first is that of the devices whose spans are the longest together, which here is equal to the
    least span of the order (:func:`~ppopt.timing.paths.shortest_spans`). Of a schedule as for :func:`longest_path`, in which all
    devices have something to do.
    """
    paths = Paths(schedule)
    first, last = around(paths)
    heads = paths.heads(first)
    weight = from_begin_to_end(paths, heads, last)
    cycles = [heaviest_cycle(weight), *([device] for device in range(len(weight)))]
    found = []
    for cycle in cycles:
        times: Counter[Part] = Counter()
        constant = 0
        for device, other in pairwise([*cycle, cycle[0]]):
            constant += _chain(paths, first, heads, last, (device, other), times)
        found.append(Certificate((Way(),), Way.of(times, constant), (Way(),), len(cycle)))
    return list(dict.fromkeys(found))


def _chain(paths: Paths, first: IntArray, heads: IntArray, last: IntArray, ends: tuple[int, int], times: Counter[Part]) -> int:
    """Count in ``times`` the operations of the longest path from the begin of a device to the end of another; its other ticks."""
    device, other = ends
    row, duration, index = paths.devices[other], paths.duration, paths.network.pipeline.index
    node = row[int(np.argmax([heads[n, device] + duration[n] + last[n, other] for n in row]))]
    constant = int(last[node, other])
    while True:
        op = index.op(int(paths.network.number[node]))
        assert isinstance(op, Op)
        assert op.kind in (Kind.F, Kind.B), "fused backwards"
        times[Part(Kind.F if op.kind == Kind.F else Kind.I, op.stage)] += 1
        start = int(heads[node, device])
        if start == first[node, device]:
            return constant + start
        for before, lag in paths.before[node]:
            if heads[before, device] + duration[before] + lag == start:
                node, constant = before, constant + lag
                break
        else:
            raise AssertionError(f"nothing says why {op} starts at {start}")
