"""A fixed order as lower bounds for whatever durations the stages have: its ways from the first operation to the last.

An operation of a fixed order starts when the one before it on its device has ended, or when its input has arrived. So a chain of
operations in which each waits for the one before takes its time on every pipeline of the same placement, number of microbatches
and links, whatever the durations are; on that pipeline on which it is the longest, it is the makespan itself.
"""

from __future__ import annotations

from collections import Counter

from ppopt.bounds.certificates import Certificate, Part, Way
from ppopt.op import Kind, Op
from ppopt.schedule import Schedule, of_stages


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
        times[Kind.F if op.kind == Kind.F else Kind.I, op.stage] += 1
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
        assert began == ticks.lead[0, op.stage], f"nothing says why {op} starts at {began}"
        return Certificate((Way(),), Way.of(times, constant + began), (Way(),))
