"""The cut of the layers that is proposed for PyTorch as its automatic partition, for the schedules that it simulates.

It begins with the cut whose stages have the least largest work. Then it goes on from the stage that is critical in the simulated
schedule: that gives its first layer to the stages before it, or its last one to the stage after it, and the stages up to there
are cut anew. What counts is the simulated time. The memory is not looked at, and there is no bound.

Source: pytorch/pytorch, pull request 179212 (``torch/distributed/pipelining/_partition.py``), by its description; there a stage's
input gradient takes half of its backward, here what the layers say, and transfers take what the links say.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, deque
from collections.abc import Iterator
from fractions import Fraction

from ppopt.named.definition import Restriction
from ppopt.named.registry import find
from ppopt.op import Kind, Op
from ppopt.pipeline import Pipeline, PipelineError
from ppopt.pipeline.layer_times import work_of_layers
from ppopt.pipeline.partitions import Counts, LeastLargest
from ppopt.schedule import Schedule
from ppopt.timing import time_order

SCHEDULES = ("1f1b", "interleaved-1f1b", "interleaved-zb")
"""The named schedules that it simulates."""
MOST = 400
"""Most schedules that are simulated."""


def auto_partition(pipeline: Pipeline, schedule: str = "1f1b") -> Counts:
    """The number of layers of each stage that is proposed for PyTorch, on the placement of a named schedule.

    ``schedule``: one of :data:`SCHEDULES`, or an alias. It gives the cut whose simulated makespan is the least of those that it
    comes to; :data:`MOST` of them are simulated at most. Where the partition or the memory limit is given they are not looked at.

    Raises:
        Restriction: it knows no such schedule, or that is not defined for these sizes, or for a backward that is not split.
        PipelineError: there are no layers, or fewer than stages; or what recomputes is open, or written out for other cuts.
        UnknownSchedule: nobody has this name.
    """
    return min(simulated(pipeline, schedule), key=_time).pipeline.counts


def simulated(pipeline: Pipeline, name: str) -> Iterator[Schedule]:
    """The schedules that :func:`auto_partition` simulates, one cut after the other, without a memory limit."""
    definition = find(name)
    if definition.name not in SCHEDULES:
        raise Restriction(f"{definition.name}: expected one of {', '.join(SCHEDULES)}, which PyTorch's auto-partition simulates")
    if pipeline.layers is None:
        raise PipelineError("pipeline.partition", "there are no layers to cut: it needs [[layers]]")
    free = dataclasses.replace(pipeline.memory, limit=None)
    placed = definition.place(pipeline.placements()[0].changed(partition="balanced", memory=free))
    work = work_of_layers(pipeline.layers, pipeline.recompute)
    scale = math.lcm(*(value.denominator for value in work))
    least = LeastLargest([int(value * scale) for value in work], placed.stages)
    first = least.counts(len(work), placed.stages)
    order = definition.order(placed.changed(partition=first))  # the same on every cut
    seen, ahead = {first}, deque([(first, placed.stages)])
    for _ in range(MOST):
        if not ahead:
            return
        counts, before = ahead.popleft()
        schedule = time_order(placed.changed(partition=counts), order)
        yield schedule
        stage = critical_stage(schedule)
        if stage <= before:  # else it has moved to the right
            for other in _moved(least, counts, stage):
                if other not in seen:
                    seen.add(other)
                    ahead.append((other, stage))


def _moved(least: LeastLargest, counts: Counts, stage: int) -> Iterator[Counts]:
    """The cuts in which a stage gives away its first layer, or its last; what is before is cut anew."""
    begin, end = sum(counts[:stage]), sum(counts[: stage + 1])
    if stage and counts[stage] > 1:
        yield (*least.counts(begin + 1, stage), counts[stage] - 1, *counts[stage + 1 :])
    if stage + 1 < len(counts) and end - 1 > stage:
        yield (*least.counts(end - 1, stage + 1), counts[stage + 1] + 1, *counts[stage + 2 :])


def critical_stage(schedule: Schedule) -> int:
    """The stage with most time on the critical path in the steady phase; with most on all of it, where it has no such phase.

    The path leads from the last end back to the first start: by what the device ran just before, and where it waited by what the
    operation needed. The steady phase of a device is from its first backward on and until its last forward has ended. Of equal
    stages it is the first.
    """
    index, rows = schedule.pipeline.index, schedule.order.rows
    ops = [[index.op(number) for number in row.tolist()] for row in rows]
    start, end = ([times.tolist() for times in table] for table in (schedule.start, schedule.end))
    place = {op: (d, i) for d, row in enumerate(ops) for i, op in enumerate(row)}
    forward = [[i for i, op in enumerate(row) if isinstance(op, Op) and op.kind == Kind.F] for row in ops]
    backward = [[i for i, op in enumerate(row) if isinstance(op, Op) and op.kind != Kind.F] for row in ops]
    steady: Counter[int] = Counter()
    whole: Counter[int] = Counter()
    at: tuple[int, int] | None = max(((d, len(row) - 1) for d, row in enumerate(ops) if row), key=lambda last: end[last[0]][-1])
    while at is not None:
        device, i = at
        op = ops[device][i]
        assert isinstance(op, Op), "none of these schedules has pairs"
        whole[op.stage] += end[device][i] - start[device][i]
        if backward[device][0] <= i <= forward[device][-1]:
            steady[op.stage] += end[device][i] - start[device][i]
        if i and end[device][i - 1] == start[device][i]:
            at = (device, i - 1)
        else:
            at = next((place[needed] for needed in _needed(op, index.stages) if needed in place), None)
    time = steady if any(steady.values()) else whole
    return min(time, key=lambda stage: (-time[stage], stage))


def _needed(op: Op, stages: int) -> Iterator[Op]:
    """What an operation waits for from other devices; one of these is run."""
    stage, kind, microbatch, _ = op
    if kind == Kind.F:
        yield Op(stage - 1, Kind.F, microbatch)
    elif kind != Kind.W and stage + 1 < stages:
        yield from (Op(stage + 1, kind, microbatch) for kind in (Kind.B, Kind.I))


def _time(schedule: Schedule) -> Fraction:
    return Fraction(schedule.makespan, schedule.pipeline.ticks.per_unit)
