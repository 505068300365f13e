"""A step of a run as a schedule, so that all that is said of schedules, and drawn of them, can be said and drawn of it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from statistics import median
from typing import Any, ClassVar

import numpy as np

from ppopt.files.inferred import infer_pipeline
from ppopt.op import Kind, Op, Pair
from ppopt.pipeline import Costs, IntArray, Memory, Pipeline, Units, microseconds
from ppopt.pipeline.ticks import Ticks, ticks_of
from ppopt.runs.clocks import halves, needs
from ppopt.runs.run import Run
from ppopt.schedule import Order, Schedule
from ppopt.timing.waits import Cause, Idle, Waited, merged

FINEST = Fraction(1, 10)
"""Microseconds of a tick, where that is no more than a unit."""
UNIT = "ms"


class _Fine(Pipeline):
    """A pipeline whose ticks are as short as those of measured times."""

    @cached_property
    def ticks(self) -> Ticks:
        """As ever, on a finer grid."""
        own = ticks_of(self)
        finer = per_unit(self.units.time) // own.per_unit
        return Ticks(own.per_unit * finer, *(np.where(table < 0, table, table * finer) for table in own[1:]))


@dataclass(frozen=True, eq=False)
class RunSchedule(Schedule):
    """What was run when. ``took``: what each operation took, in ticks; those of one stage differ."""

    took: tuple[IntArray, ...] = ()
    exact: ClassVar[bool] = False

    @cached_property
    def duration(self) -> tuple[IntArray, ...]:
        """Per device and operation, in ticks."""
        return self.took


def per_unit(unit: str) -> int:
    """Ticks of a unit of time such as ``ms``."""
    known = microseconds(unit)
    assert known is not None, unit
    return max(1, int(known / FINEST))


def schedule_of(run: Run, unit: str = UNIT, held: Pipeline | None = None) -> RunSchedule:
    """A run in units of time such as ``ms``; its devices hold what those of the pipeline ``held`` do, which says it per stage.

    Its pipeline has the medians of the operations as costs; the schedule has each operation's own begin and end.
    """
    scale = float(1_000_000 / (microseconds(unit) or 1)) * per_unit(unit)  # ticks of a second
    edges = [[(round(each.begin * scale), round(each.end * scale)) for each in row] for row in run.rows]
    pipeline = _pipeline(run, unit, held, scale)
    order = Order.of(pipeline, [[each.op for each in row] for row in run.rows])
    start, end = (tuple(np.array([edge[side] for edge in row], dtype=np.int64) for row in edges) for side in (0, 1))
    return RunSchedule(pipeline, order, start, took=tuple(b - a for a, b in zip(start, end, strict=True)))


def _pipeline(run: Run, unit: str, held: Pipeline | None, scale: float) -> Pipeline:
    samples: dict[tuple[Kind | str, int], list[float]] = {}
    for row in run.rows:
        for each in row:
            key = ("pair", each.op.forward.stage) if isinstance(each.op, Pair) else (each.op.kind, each.op.stage)
            samples.setdefault(key, []).append(each.end - each.begin)  # type: ignore[arg-type]

    def medians(kind: Kind | str) -> list[Fraction]:
        found = [samples.get((kind, stage), [0.0]) for stage in range(run.stages)]
        return [Fraction(round(median(seconds) * scale), per_unit(unit)) for seconds in found]

    costs: dict[str, Any] = {"forward": medians(Kind.F)}
    parts = {"backward_input": medians(Kind.I), "backward_weight": medians(Kind.W)}
    kinds = {kind for kind, _ in samples}
    if Kind.I in kinds or Kind.W in kinds:
        costs |= parts
    if not costs.keys() & parts.keys() or Kind.B in kinds:
        summed = [a + b for a, b in zip(*parts.values(), strict=True)]
        costs["backward"] = [one or both for one, both in zip(medians(Kind.B), summed, strict=True)]
    if "pair" in kinds:
        costs["overlap"] = medians("pair")
    placed = infer_pipeline([[Op(stage, Kind.F, 0) for stage in stages] for stages in run.held])
    where = (
        {"routes": placed.routes} if placed.placement == "routes" else {"placement": placed.placement, "chunks": placed.chunks}
    )
    return _Fine(
        placed.devices,
        run.microbatches,
        **where,
        costs=Costs("stage", **costs),
        memory=Memory() if held is None else held.memory,
        units=Units(unit, "" if held is None else held.units.memory),
        runtime="" if held is None else held.runtime,
    )


# --- idle time ---------------------------------------------------------------------------------------------------


def gaps_of(schedule: RunSchedule) -> list[list[Idle]]:
    """Per device when it was idle between the begin of the step and its end, and why.

    :attr:`~ppopt.timing.waits.Cause.LINK` is all of the time after the input of its next operation was computed: the transfer, a
    launch, or anything else that the files do not show.
    """
    made = _inputs_made(schedule)
    rows = []
    for device, idle in enumerate(Waited(schedule).idle):
        gaps: list[Idle] = []
        for gap in idle:
            known = gap.until if gap.cause in (Cause.START, Cause.END) else made[device][gap.place]
            cut = min(max(known, gap.since), gap.until)
            gaps += [gap._replace(until=cut), gap._replace(since=cut, cause=Cause.LINK)]
        rows.append(list(merged(gap for gap in gaps if gap.since < gap.until)))
    return rows


def _inputs_made(schedule: RunSchedule) -> list[list[int]]:
    """Per device and operation when the last of its inputs had been computed, in ticks."""
    stages = schedule.pipeline.stages
    rows = [schedule.order.ops(device) for device in range(schedule.pipeline.devices)]
    timed = [pair for row, ends in zip(rows, schedule.end, strict=True) for pair in zip(row, ends.tolist(), strict=True)]
    end = {half: int(time) for op, time in timed for half in halves(op)}
    return [
        [max((end[need] for half in halves(op) for need in needs(half, stages) if need in end), default=0) for op in row]
        for row in rows
    ]


def idle_of(schedule: RunSchedule) -> list[dict[Cause, int]]:
    """Per device the ticks for which it was idle, by cause; with its work they make up the makespan."""
    return [
        {cause: sum(gap.until - gap.since for gap in row if gap.cause == cause) for cause in Cause} for row in gaps_of(schedule)
    ]
