"""A greedy that looks at the next operation of every microbatch: of these, what can start first is placed next.

The rule of A. Rahimi's parallelsim (github.com/a-rahimi/parallel-training): of two that can start at the same time, the one goes
first whose predecessor has priority. Devices are free to take any operation; nothing is said of memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from ppopt.clock import check_time
from ppopt.constraints import Listed, Precede
from ppopt.op import Kind, Op
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order

FILLINGS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "oldest-microbatch": lambda microbatch, done: (microbatch, done),
    "oldest-stage": lambda microbatch, done: (done, microbatch),
}
"""What ranks those that can start at one time, the smallest first: the microbatch, and how many of its operations are placed."""


def by_frontier(pipeline: Pipeline, filling: str = "oldest-microbatch", most: int | None = None) -> Order:
    """The order in which the operations are placed: forwards and fused backwards. ``filling``: a name of :data:`FILLINGS`.

    An operation starts once its device is free and what it needs has arrived; links carry any number of transfers. With
    ``most`` no more microbatches than that are in flight: one enters when another is through.
    """
    rank, stages, ticks = FILLINGS[filling], pipeline.stages, pipeline.ticks
    place, lag, took = pipeline.device_by_kind.tolist(), ticks.lag.tolist(), ticks.duration.tolist()
    lead, route_of = ticks.lead.tolist(), pipeline.route_of_microbatch
    path = [(Kind.F, s) for s in range(stages)] + [(Kind.B, s) for s in reversed(range(stages))]
    free, rows = [0] * pipeline.devices, [list[int]() for _ in range(pipeline.devices)]
    left_behind: dict[tuple[int, int], int] = {}
    """By microbatch and stage, when what its forward leaves behind is where the backward runs."""

    def ready(microbatch: int, done: int, end: int) -> int:
        """When the next operation of a microbatch has its inputs, if the one before it ended at ``end``."""
        route = route_of[microbatch]
        (kind, stage), before = path[done], path[done - 1]
        on = place[route][kind][stage]
        arrival = end + lag[place[route][before[0]][before[1]]][on] if done else 0
        if kind == Kind.B:
            arrival = max(arrival, left_behind.pop((microbatch, stage)))
        return max(arrival, int(lead[route][kind][stage]))

    inputs = [ready(m, 0, 0) for m in range(pipeline.microbatches)]
    entered = pipeline.microbatches if most is None else min(most, pipeline.microbatches)
    waiting = [(inputs[m], rank(m, 0), m, 0) for m in range(entered)]
    heapq.heapify(waiting)
    while waiting:
        check_time()
        time, key, microbatch, done = heapq.heappop(waiting)
        route, (kind, stage) = route_of[microbatch], path[done]
        device = place[route][kind][stage]
        start = max(free[device], inputs[microbatch])
        if start > time:  # its device has taken something else meanwhile
            heapq.heappush(waiting, (start, key, microbatch, done))
            continue
        rows[device].append((int(kind) * stages + stage) * pipeline.microbatches + microbatch)
        free[device] = end = start + took[route][kind][stage]
        if kind == Kind.F:
            left_behind[microbatch, stage] = end + lag[device][place[route][Kind.B][stage]]
        if done + 1 < len(path):
            inputs[microbatch] = ready(microbatch, done + 1, end)
            heapq.heappush(waiting, (inputs[microbatch], rank(microbatch, done + 1), microbatch, done + 1))
        elif entered < pipeline.microbatches:
            inputs[entered] = max(inputs[entered], end)
            heapq.heappush(waiting, (inputs[entered], rank(entered, 0), entered, 0))
            entered += 1
    return Order(pipeline.index, tuple(np.array(row, dtype=np.int64) for row in rows))


def in_flight(pipeline: Pipeline, most: int) -> tuple[Precede, ...]:
    """That at most so many microbatches are in flight, whatever their routes are: each enters once an earlier one is through."""
    later = range(most, pipeline.microbatches)
    through, enters = (tuple(Op(0, kind, m - ago) for m in later) for kind, ago in ((Kind.B, most), (Kind.F, 0)))
    return (Precede(Listed(through), Listed(enters)),) if enters else ()
