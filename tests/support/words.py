"""All orders of a small pipeline under words, one by one."""

from collections.abc import Sequence
from typing import Any

from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import Word, rules_of
from ppopt.op import Op
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.search import horizon
from ppopt.timing import broken

Wait = tuple[Op, Op, int]


def starts(durations: dict[Op, int], waits: Sequence[Wait]) -> dict[Op, int] | None:
    """The earliest starts; ``None``: operations wait for each other."""
    start = dict.fromkeys(durations, 0)
    for _ in range(len(durations) + 1):
        moved = False
        for a, b, lag in waits:
            if start[a] + durations[a] + lag > start[b]:
                start[b], moved = start[a] + durations[a] + lag, True
        if not moved:
            return start
    return None


def found(solver: Any, pipeline: Pipeline, objective: Objective, binding: Sequence[Word]) -> int | None:
    """What a solver says without any bound or start; ``None``: there is no schedule."""
    until = horizon(pipeline, binding)
    outcome = solver.solve(
        pipeline,
        (*rules_of(pipeline), *binding),
        objective=objective,
        lower=0,
        upper=until,
        horizon=until,
        limits=Limits.of(30, workers=1),
    )
    if outcome.schedule is None:
        assert outcome.lower_bound > until
        return None
    obeyed(outcome.schedule, binding)
    value: int = outcome.schedule.objective(objective)
    assert outcome.lower_bound == value
    return value


def obeyed(schedule: Schedule, words: Sequence[Word]) -> None:
    assert violations(schedule.pipeline, schedule) == []
    assert broken(schedule, words) == []


def moved(schedule: Schedule, op: Op, ticks: int) -> Schedule:
    """One operation later, nothing else."""
    starts = [column.copy() for column in schedule.start]
    for row, column in zip(schedule.order.rows, starts, strict=True):
        column[row == schedule.pipeline.index.number(op)] += ticks
    return Schedule(schedule.pipeline, schedule.order, tuple(starts), schedule.transfers)
