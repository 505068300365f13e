"""Bounds in closed form."""

import pytest

from ppopt import bounds
from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.search.steps.closed_forms import ClosedForm, MemoryBound, OneMachine, Work
from tests.support.search import bound_by_name, run_of, take

PIPELINE = Pipeline(4, 8, memory=Memory(limit=2))


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize(("step", "of"), [(Work, bounds.work), (OneMachine, bounds.machine), (MemoryBound, bounds.memory)])
def test_the_bound_is_learned(step: type[ClosedForm], of: object, objective: str) -> None:
    run = run_of(PIPELINE, objective=objective)
    take(run, step)
    bound = of(PIPELINE, objective, pairs=True)  # type: ignore[operator]
    assert (run.incumbent.lower, run.incumbent.proved_by) == (bound.value, bound.argument)
    assert run.taken[-1].outcome == f"{PIPELINE.time(bound.value)}: {bound.proof}"


def test_where_memory_says_nothing() -> None:
    run = run_of(Pipeline(4, 8))
    take(run, MemoryBound)
    assert (run.incumbent.lower, run.taken[-1].outcome) == (0, "does not apply")


def test_pairs_count_where_they_may_be_run() -> None:
    """A named order without pairs has the bound without them."""
    pipeline = Pipeline(1, 3, costs=Costs(forward=2, backward=3, overlap=4))
    free, bound = run_of(pipeline), bound_by_name(pipeline, "1f1b")
    for run in (free, bound):
        take(run, Work)
    assert free.incumbent.lower < bound.incumbent.lower == 15
