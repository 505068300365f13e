"""Searches around the best schedule, as steps: by neighbourhoods, and by tabu search."""

import pytest

from ppopt.checker import violations
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Pipeline
from ppopt.search.step import Step
from ppopt.search.steps.neighbourhoods import Neighbourhoods
from ppopt.search.steps.tabu_search import TabuSearch
from tests.support.search import begun, bound_by_name, reason, run_of, take

PIPELINE = Pipeline(3, 5, costs=Costs(forward=4, backward_input=3, backward_weight=3), memory=Memory(limit=2))
each = pytest.mark.parametrize("step", [Neighbourhoods, TabuSearch])


@each
def test_where_it_applies(step: type[Step]) -> None:
    assert reason(step, run_of(PIPELINE)) == "there is no schedule yet"
    assert reason(step, begun(run_of(PIPELINE))) is None
    assert "constraints that bind" in str(reason(step, bound_by_name(PIPELINE, "1f1b")))
    assert reason(step, begun(run_of(PIPELINE.changed(data_parallel=DataParallel(1))))) is None
    assert "between its operations" in str(reason(step, run_of(PIPELINE.changed(data_parallel=DataParallel(1, per_pass=True)))))


def test_where_transfers_block() -> None:
    blocking = PIPELINE.changed(links=Links(occupancy=1, blocking=True))
    assert "block" in str(reason(TabuSearch, run_of(blocking)))
    assert reason(Neighbourhoods, begun(run_of(blocking))) is None


@pytest.mark.parametrize(("step", "source"), [(Neighbourhoods, "neighbourhoods"), (TabuSearch, "tabu search")])
def test_the_worst_list_schedule_is_improved(step: type[Step], source: str) -> None:
    run = begun(run_of(PIPELINE))
    before = run.incumbent.value
    take(run, step)
    assert run.step(step).gained
    assert run.incumbent.value < before
    assert run.incumbent.source == source
    assert run.incumbent.best is not None
    assert violations(PIPELINE, run.incumbent.best) == []


@each
def test_an_optimum_is_not(step: type[Step]) -> None:
    run = run_of(Pipeline(1, 3))
    run.incumbent.prove(9, "work")
    begun(run)
    take(run, step)
    assert not run.step(step).gained
