"""The best makespan before the least span."""

from ppopt.heuristics import baselines
from ppopt.pipeline import Memory, Pipeline
from ppopt.search.steps.closed_forms import MemoryBound, OneMachine
from ppopt.search.steps.list_schedules import ListSchedules
from ppopt.search.steps.makespan_first import MakespanFirst
from ppopt.search.turns import Turn
from tests.support.search import run_of, take

PIPELINE = Pipeline(4, 8, memory=Memory(limit=2))


def test_schedules_and_bounds_of_the_makespan_are_taken_over() -> None:
    run = run_of(PIPELINE, objective="span")
    take(run, MakespanFirst, strategy=(Turn(OneMachine), Turn(MemoryBound), Turn(ListSchedules)))
    assert run.incumbent.best is not None
    assert run.incumbent.value <= min(schedule.makespan for _, schedule in baselines(PIPELINE))
    assert 24 < run.incumbent.lower <= run.incumbent.value  # more than the work
    assert [taken.name for taken in run.taken] == [
        "makespan: bound: one machine",
        "makespan: bound: memory",
        "makespan: list scheduling",
        "spans of the best makespan",
    ] or run.taken[0].name == "spans of the best makespan"
    assert "(makespan " in next(taken.outcome for taken in run.taken if taken.name == "spans of the best makespan")


def test_what_is_known_is_where_it_begins() -> None:
    run = run_of(PIPELINE, objective="span")
    run.incumbent.offer(baselines(PIPELINE)[0][1], "a test")
    take(run, MakespanFirst)
    assert run.incumbent.source == "a test"
