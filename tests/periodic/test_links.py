"""Modulo scheduling where transfers hold links."""

import pytest
from hypothesis import given, settings

from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.periodic.periodic_schedule import microbatches_per_route, schedule_of
from ppopt.pipeline import Links, Memory, Pipeline
from ppopt.search import solve
from tests.support import tuned
from tests.support.strategies import linked
from tests.support.tiers import thorough


@pytest.mark.parametrize("examples", [3, pytest.param(12, marks=thorough)])
def test_modulo_scheduling_keeps_links(examples: int) -> None:
    kept = 0

    @settings(max_examples=examples)
    @given(linked(30, least=1))
    def on(pipeline: Pipeline) -> None:
        nonlocal kept
        kept += keeps_links(pipeline)

    on()
    assert 3 * kept >= 2 * examples


def keeps_links(pipeline: Pipeline) -> int:
    """For how many numbers of microbatches a schedule of few of them is repeated."""
    kept = 0
    pipeline = pipeline.changed(microbatches=6 * len(pipeline.routes))
    limits = Limits.of(1, deterministic=True)
    few = tuned.periodic_schedule(pipeline, lower_bound=0, limits=limits)
    if few.periodic is None:
        return 0  # not within that time
    assert few.periodic.is_valid()
    for more in (0, 20):
        larger = pipeline.changed(microbatches=pipeline.microbatches + more * few.periodic.unroll * len(pipeline.routes))
        expected = few.periodic.makespan_for(microbatches_per_route(larger))
        if expected is None:
            continue  # its prologue and epilogue have more
        kept += 1
        schedule = schedule_of(larger, few.periodic)
        assert violations(larger, schedule) == []
        assert max(of.value for of in tuned.best(larger, limits=Limits.of(0.2, workers=1))) <= schedule.makespan <= expected
    return kept


def test_modulo_scheduling_meets_the_bound_of_a_link() -> None:
    pipeline = Pipeline(2, 200, links=Links(1, 4), memory=Memory(limit=6))
    result = solve(pipeline, seconds=20, workers=1)
    assert result.reason == "optimal"
    assert result.value == 1 + 200 * 4 + 1 + 2 + 4 + 1 + 2  # 0F0, all results sent, on the way, F and I, its gradient, I and W
