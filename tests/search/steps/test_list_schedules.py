"""Schedules that need no solver."""

import pytest

from ppopt.constraints import Family, OneOf, Precede
from ppopt.heuristics import baselines, list_scheduling
from ppopt.named import adapted
from ppopt.op import Kind
from ppopt.pipeline import Memory, Pipeline
from ppopt.search import tuning
from ppopt.search.steps.list_schedules import ListSchedules, NamedHeuristics, OneAfterTheOther, PacedSchedules
from ppopt.timing import broken
from tests.support.search import bound_by_name, reason, run_of, take

PIPELINE = Pipeline(4, 8, memory=Memory(limit=3))


def test_all_list_schedules_while_there_is_time() -> None:
    run = run_of(PIPELINE)
    charged = take(run, ListSchedules)
    schedules = [schedule for _, schedule in baselines(PIPELINE)]
    assert run.incumbent.value == min(schedule.makespan for schedule in schedules)
    assert charged == pytest.approx(tuning.LEAST + len(schedules) * tuning.SCHEDULED * run.problem.operations)


def test_one_in_any_case_and_it_goes_on_from_there() -> None:
    run = run_of(PIPELINE)
    first = take(run, ListSchedules, 0.0)
    assert run.incumbent.best is not None
    assert first < take(run, ListSchedules)
    assert run.incumbent.value == min(schedule.makespan for _, schedule in baselines(PIPELINE))


def test_none_is_begun_that_there_is_no_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(PIPELINE)
    take(run, ListSchedules, 0.0)
    for step in (ListSchedules, PacedSchedules):
        monkeypatch.setattr(list_scheduling, "SECONDS", 1 + run.clock.left / run.problem.operations)
        assert take(run, step) == pytest.approx(tuning.LEAST)
        monkeypatch.setattr(list_scheduling, "SECONDS", 0.0)
        assert take(run, step) > 2 * tuning.LEAST


def test_it_ends_where_the_bound_is_met() -> None:
    run = run_of(Pipeline(1, 4))
    run.incumbent.prove(12, "work")
    assert take(run, ListSchedules) == pytest.approx(tuning.LEAST + tuning.SCHEDULED * run.problem.operations)


def test_lists_under_words_obey_them() -> None:
    words = (Precede(Family(3, Kind.F), Family(0, Kind.F), shift=1), *(OneOf(((Family(s, Kind.B),),)) for s in range(4)))
    run = run_of(PIPELINE, words=words)
    take(run, ListSchedules)
    assert run.incumbent.best is not None
    assert broken(run.incumbent.best, words) == []


@pytest.mark.parametrize("step", [NamedHeuristics, PacedSchedules])
def test_others_know_nothing_of_what_binds(step: type[OneAfterTheOther]) -> None:
    assert reason(step, bound_by_name(PIPELINE, "1f1b")) == "it knows nothing of constraints that bind"
    assert reason(step, run_of(PIPELINE)) is None


def test_named_heuristics_give_the_best_that_fits() -> None:
    run = run_of(PIPELINE)
    assert run.step(NamedHeuristics).fresh
    take(run, NamedHeuristics)
    assert not run.step(NamedHeuristics).fresh
    assert run.incumbent.value == min(schedule.makespan for _, schedule in adapted(PIPELINE) if schedule.within_memory)


def test_a_pace_is_sought_until_nothing_better_came_for_long() -> None:
    run = run_of(PIPELINE, seconds=1000)
    charged = take(run, PacedSchedules, 1000)
    assert tuning.PATIENCE <= (charged - tuning.LEAST) / (tuning.SCHEDULED * run.problem.operations) < 100 * tuning.PATIENCE
    assert run.incumbent.value <= min(schedule.makespan for _, schedule in baselines(PIPELINE))
    again = run_of(PIPELINE, seconds=1000)
    assert take(again, PacedSchedules, 0.01) < charged
