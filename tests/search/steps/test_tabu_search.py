"""Tabu search around the best schedule, as a step."""

from ppopt.checker import violations
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Pipeline
from ppopt.search.steps.tabu_search import TabuSearch
from tests.support.search import begun, bound_by_name, reason, run_of, take

PIPELINE = Pipeline(3, 5, costs=Costs(forward=4, backward_input=3, backward_weight=3), memory=Memory(limit=2))


def test_where_it_applies() -> None:
    assert reason(TabuSearch, run_of(PIPELINE)) == "there is no schedule yet"
    assert reason(TabuSearch, begun(run_of(PIPELINE))) is None
    assert "constraints that bind" in str(reason(TabuSearch, bound_by_name(PIPELINE, "1f1b")))
    assert "before and after" in str(reason(TabuSearch, run_of(PIPELINE.changed(data_parallel=DataParallel(1)))))
    assert "block" in str(reason(TabuSearch, run_of(PIPELINE.changed(links=Links(occupancy=1, blocking=True)))))


def test_the_worst_list_schedule_is_improved() -> None:
    run = begun(run_of(PIPELINE))
    before = run.incumbent.value
    take(run, TabuSearch)
    assert run.step(TabuSearch).gained
    assert run.incumbent.value < before
    assert run.incumbent.source == "tabu search"
    assert run.incumbent.best is not None
    assert violations(PIPELINE, run.incumbent.best) == []


def test_an_optimum_is_not() -> None:
    run = run_of(Pipeline(1, 3))
    run.incumbent.prove(9, "work")
    begun(run)
    take(run, TabuSearch)
    assert not run.step(TabuSearch).gained
