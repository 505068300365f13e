"""Small schedules for the checker."""

from ppopt.checker import Record, Violation
from ppopt.pipeline import Costs, Links, Pipeline
from ppopt.schedule import Schedule


def records(schedule: Schedule) -> list[list[Record]]:
    """A schedule as a result file has it: doubles where times are not whole."""
    time = schedule.pipeline.time
    return [
        [(op, time(start), time(end)) for op, start, end in zip(ops, starts, ends, strict=True)]
        for ops, starts, ends in zip(schedule.order.texts(), schedule.start, schedule.end, strict=True)
    ]


TWO = Pipeline(2, 1, costs=Costs(forward=1, backward=2), links=Links(1))

VALID: list[list[Record]] = [[("0F0", 0, 1), ("0B0", 6, 8)], [("1F0", 2, 3), ("1B0", 3, 5)]]


def only(found: list[Violation]) -> Violation:
    assert len(found) == 1, found
    return found[0]
