"""The named schedules as baselines."""

from ppopt.named import find
from ppopt.pipeline import Memory, Pipeline
from ppopt.search import tuning
from ppopt.search.steps.named_schedules import NamedSchedules
from ppopt.timing import broken
from tests.support.search import bound_by_name, run_of, take
from tests.support.shown import SHOWN


def test_the_best_of_this_placement_that_fits_is_taken() -> None:
    run = run_of(Pipeline(4, 8, memory=Memory(limit=4)))
    charged = take(run, NamedSchedules)
    assert [row.name for row in run.named] == SHOWN
    assert charged >= tuning.SCHEDULED * run.problem.operations * len(SHOWN)
    assert run.incumbent.best is not None
    assert run.incumbent.value == find("zb-h1").schedule(run.problem.pipeline).makespan == 27
    assert run.incumbent.best.within_memory


def test_under_words_those_that_obey_them() -> None:
    run = bound_by_name(Pipeline(4, 8), "1f1b")
    take(run, NamedSchedules)
    assert run.incumbent.best is not None
    assert run.incumbent.best.order == find("1f1b").order(run.problem.pipeline)
    assert broken(run.incumbent.best, run.problem.words) == []


def test_the_rows_are_shown_even_where_all_have_another_placement() -> None:
    run = run_of(Pipeline(3, 4, routes=[[2, 0, 1]]))
    take(run, NamedSchedules)
    assert len(run.named) == len(SHOWN)
    assert run.taken[-1].outcome == f"0 of {len(SHOWN)} have this placement; nothing found"
