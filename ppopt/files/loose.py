"""Times for orders that may have mistakes, so that the checker can say what is wrong."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

import numpy as np

from ppopt.files.inferred import Rows, halves_of
from ppopt.op import Kind, Op, Pair
from ppopt.pipeline import Pipeline
from ppopt.schedule import durations

Times: TypeAlias = list[list[tuple[Op | Pair, Fraction, Fraction]]]
"""Per device: operation, start and end in the model's unit."""


def loose_times(pipeline: Pipeline, rows: Rows) -> Times:
    """Start and end of every operation, each as early as its device and those inputs that are run at all allow.

    Where nothing can go on (a deadlock), the first device that waits goes on without its input: too early, as the
    checker will say. Operations that the pipeline does not have take no time.
    """
    ticks = pipeline.ticks
    devices = {half: device for device, row in enumerate(rows) for op in row for half in halves_of([op])}
    end: dict[Op, int] = {}
    free, at = [0] * len(rows), [0] * len(rows)
    times: Times = [[] for _ in rows]

    def lag(before: Op, after: Op) -> int:
        a, b = devices[before], devices[after]
        return int(ticks.lag[a, b]) if max(a, b) < pipeline.devices else 0

    def run(device: int, forced: bool) -> bool:
        op = rows[device][at[device]]
        inputs = [(before, half) for half in halves_of([op]) for before in _inputs(half) if before in devices]
        if not forced and any(before not in end for before, _ in inputs):
            return False
        ready = [end[before] + lag(before, half) for before, half in inputs if before in end]
        start = max([free[device], *ready]) if not forced else free[device]
        free[device] = start + _length(pipeline, op)
        for half in halves_of([op]):
            end.setdefault(half, free[device])
        at[device] += 1
        times[device].append((op, Fraction(start, ticks.per_unit), Fraction(free[device], ticks.per_unit)))
        return True

    while left := [device for device, row in enumerate(rows) if at[device] < len(row)]:
        moved = False
        for device in left:
            while at[device] < len(rows[device]) and run(device, forced=False):
                moved = True
        if not moved:
            run(left[0], forced=True)
    return times


def _inputs(op: Op) -> list[Op]:
    """What an operation may wait for; of a backward in one piece or two, whichever is run."""
    stage, kind, microbatch, piece = op
    if kind == Kind.F:
        return [Op(stage - 1, Kind.F, microbatch)]
    if kind == Kind.W:
        return [op._replace(piece=piece - 1) if piece > 0 else Op(stage, Kind.I, microbatch)]
    return [Op(stage, Kind.F, microbatch), Op(stage + 1, Kind.B, microbatch), Op(stage + 1, Kind.I, microbatch)]


def _length(pipeline: Pipeline, op: Op | Pair) -> int:
    try:
        number = pipeline.index.number(op)
    except ValueError:
        return 0
    return max(0, int(durations(pipeline, np.array([number]))[0]))
