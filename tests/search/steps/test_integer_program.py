"""The integer program as a step."""

from ppopt.constraints import Family, Precede
from ppopt.op import Kind
from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.search.steps.integer_program import IntegerProgram
from tests.support.search import begun, run_of, take

SMALL = Pipeline(2, 3, costs=Costs(forward=2, backward_input=2, backward_weight=1), memory=Memory(limit=1))


def test_it_finds_the_optimum_with_and_without_a_start() -> None:
    values = set()
    for run in (run_of(SMALL, seconds=60), begun(run_of(SMALL, seconds=60))):
        take(run, IntegerProgram, 30)
        assert run.incumbent.closed
        assert run.incumbent.best is not None
        assert "pulp" in run.versions
        values.add(run.incumbent.value)
    assert values == {27}


def test_it_says_that_there_is_no_schedule() -> None:
    words = tuple(Precede(Family(0, kind), Family(0, Kind.F)) for kind in (Kind.B, Kind.I))
    run = run_of(Pipeline(1, 2), seconds=60, words=words)
    take(run, IntegerProgram, 30)
    assert run.incumbent.infeasible
    assert run.taken[-1].outcome == "there is no schedule"
