"""The schedule of the best choice, improved with its own choice."""

import pytest

from ppopt.clock import Clock
from ppopt.heuristics import baselines
from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.schedule import Objective, Schedule
from ppopt.search import Settings, solve_closed
from ppopt.search.best_choice import BestChoice

SETTINGS = Settings(seconds=60, workers=1)
PIPELINE = Pipeline(3, 5, costs=Costs(forward=2, recompute=1), memory=Memory(limit=2, recompute_saved=0.5), recompute=[1])


def worst(pipeline: Pipeline, objective: Objective) -> Schedule:
    return max((schedule for _, schedule in baselines(pipeline)), key=lambda schedule: schedule.objective(objective))


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_it_comes_to_the_optimum_of_its_choice_and_is_not_due_then(objective: Objective) -> None:
    start = worst(PIPELINE, objective)
    optimum = solve_closed(PIPELINE, objective, SETTINGS).ticks.value
    assert start.objective(objective) != optimum
    own, best = BestChoice(objective, SETTINGS, ()), start
    while own.due(best, 1e6):
        best = own.improved(best, Clock(60))
        assert best.pipeline == PIPELINE
    assert best.objective(objective) == optimum


def test_it_has_as_much_time_as_the_tree_and_less_where_it_is_in_vain() -> None:
    many = Pipeline(4, 24, costs=Costs(forward=[2, 3, 3, 1]), memory=Memory(limit=2))
    best = solve_closed(many, settings=Settings(seconds=2, workers=1, deterministic=True)).schedule
    assert best is not None
    own = BestChoice("makespan", SETTINGS, ())
    assert not own.due(best, 9.9)
    assert own.due(best, 10.0), "a sixth of the time limit"
    assert own.improved(best, Clock(0)) is best
    assert not own.due(best, 39.9)
    assert own.due(best, 60.0), "twice as long, and half as much as the tree"


def test_another_choice_is_another_search() -> None:
    own = BestChoice("makespan", SETTINGS, ())
    while own.due(best := worst(PIPELINE, "makespan"), 1e6):
        own.improved(best, Clock(60))
    other = PIPELINE.changed(recompute="all")
    assert own.due(worst(other, "makespan"), 1e6)
    assert own.improved(worst(other, "makespan"), Clock(60)).pipeline == other


def test_integer_programs_begin_anew_each_time_so_there_is_none() -> None:
    own = BestChoice("makespan", Settings(seconds=60, workers=1, solver="ilp"), ())
    assert not own.due(worst(PIPELINE, "makespan"), 1e6)
