"""Solving with an optimizer step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

import ppopt as pp
from ppopt import cpsat
from ppopt.constraints import Lead, Tail, cuts_of, rules_of, select
from ppopt.pipeline import Costs, DataParallel, Pipeline
from tests.support.strategies import pipelines
from tests.support.unaided import optimum


def test_one_device() -> None:
    """F I W of two microbatches, then the step of 5."""
    result = pp.solve(Pipeline(1, 2, costs=Costs(optimizer=5)), seconds=5)
    assert (result.value, result.reason) == (11, "optimal")
    assert result.schedule is not None
    assert result.schedule.work == (6,)
    assert result.schedule.margins == [(0, 6, 11)]


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_the_same_step_everywhere_comes_on_top(objective: Any) -> None:
    compared = 0

    @settings(max_examples=10)
    @given(pipelines(14))
    def on(pipeline: Pipeline) -> None:
        nonlocal compared
        later = pipeline.changed(costs=replace(pipeline.costs, optimizer=4), route_of_microbatch=pipeline.route_of_microbatch)
        scale = later.ticks.per_unit / pipeline.ticks.per_unit
        without, with_ = (optimum(cpsat, each, objective, cuts_of(each)) for each in (pipeline, later))
        if without is None or with_ is None:
            return  # operations without duration that pass each other
        compared += 1
        assert with_ == without * scale + 4 * later.ticks.per_unit

    on()
    assert compared >= 6


def test_it_begins_when_the_reduce_scatter_is_over() -> None:
    both = Pipeline(2, 2, costs=Costs(optimizer=(1, 3)), data_parallel=DataParallel(reduce_scatter=2))
    assert both.ticks.tail[:, 0].tolist() == [[3, 5]]
    tails = {(str(word.family), word.ticks) for word in select(rules_of(both), Tail)}
    assert tails == {("0F", 3), ("0B", 3), ("0I", 3), ("0W", 3), ("1F", 5), ("1B", 5), ("1I", 5), ("1W", 5)}
    assert not select(rules_of(both), Lead)
