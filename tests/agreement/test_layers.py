"""The cut decided with the order, against every cut, each solved alone."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.pipeline import Pipeline
from ppopt.search import solve
from tests.support.every_cut import by_enumeration, choices, layered, mixed

SHARE = pytest.mark.parametrize(
    "share",
    [1, pytest.param(4, marks=pytest.mark.thorough), pytest.param(20, marks=pytest.mark.slow)],
    ids=["few", "more", "many"],
)


def holds(pipeline: Pipeline, objective: Objective, count: Counter[str]) -> None:
    """The joint optimum is the best of all, and no named schedule is better on its cut of this placement."""
    result = solve(pipeline, objective=objective, workers=1, seconds=60)
    best = by_enumeration(pipeline, objective)
    if best is None:
        assert result.reason == "infeasible"
        count["infeasible"] += 1
        return
    assert result.reason == "optimal"
    assert result.schedule is not None
    assert violations(result.pipeline, result.schedule) == []
    assert Fraction(result.ticks.value or 0, result.ticks.per_unit) == best
    assert result.ticks.lower_bound == result.ticks.value
    assert result.scope is not None
    assert result.scope.partition == "best"
    assert result.pipeline == pipeline.changed(partition=result.pipeline.counts, recompute=result.pipeline.recompute)
    for row in result.named:
        if row.within_memory and row.schedule is not None and row.schedule.pipeline.routes == pipeline.routes:
            value = row.schedule.objective(objective)
            assert Fraction(value, row.schedule.pipeline.ticks.per_unit) >= best or row.schedule.order.paired
    count["solved"] += 1
    count[pipeline.placement] += 1
    count["recomputing"] += bool(result.pipeline.recomputing)


@SHARE
def test_the_best_of_all_cuts(share: int) -> None:
    count: Counter[str] = Counter()

    @settings(max_examples=7 * share)
    @given(layered(9, 40 if share > 1 else 12), st.sampled_from(("makespan", "makespan", "makespan", "span")))
    def on(pipeline: Pipeline, objective: Objective) -> None:
        holds(pipeline, objective if pipeline.placement != "bidirectional" else "makespan", count)

    on()
    print(dict(count))  # shown with -s
    assert count["solved"] >= 3 * share
    assert count["linear"] >= share


@SHARE
def test_the_best_of_all_cuts_and_of_all_that_may_recompute(share: int) -> None:
    count: Counter[str] = Counter()

    @settings(max_examples=8 * share)
    @given(layered(4, 4, ("choose",)).filter(lambda pipeline: choices(pipeline) <= 40 * share))
    def on(pipeline: Pipeline) -> None:
        holds(pipeline, "makespan", count)

    on()
    print(dict(count))  # shown with -s
    assert count["solved"] >= 2 * share
    assert count["recomputing"] >= min(share, 4)  # of those as fast one without recomputing is found first


@SHARE
def test_the_best_of_all_cuts_of_microbatches_that_differ(share: int) -> None:
    count: Counter[str] = Counter()
    small = mixed(7, 10).filter(lambda pipeline: pipeline.stages > 1 and pipeline.stages * pipeline.microbatches <= 6 + share)

    @settings(max_examples=3 * share)
    @given(small, st.sampled_from(("makespan", "makespan", "span")))
    def on(pipeline: Pipeline, objective: Objective) -> None:
        holds(pipeline, objective, count)

    on()
    print(dict(count))  # shown with -s
    assert count["solved"] >= share


@pytest.mark.thorough
def test_the_best_of_all_cuts_and_of_all_that_may_recompute_where_microbatches_differ() -> None:
    count: Counter[str] = Counter()

    @settings(max_examples=12)
    @given(mixed(4, 4, ("choose",)).filter(lambda one: choices(one) <= 40 and one.stages * one.microbatches <= 8))
    def on(pipeline: Pipeline) -> None:
        holds(pipeline, "makespan", count)

    on()
    assert count["solved"] >= 3
