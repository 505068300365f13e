"""Bounds and optima of random small pipelines under limits of memory."""

import dataclasses
from fractions import Fraction

from hypothesis import given, settings

from ppopt import bounds, cpsat
from ppopt.clock import Limits
from ppopt.constraints import rules_of
from ppopt.heuristics import baselines
from ppopt.pipeline import Costs, Links
from ppopt.search import horizon, span_horizon
from tests.support.search import proved
from tests.support.strategies import objectives, pipelines


@given(pipelines(18, least=1), objectives)
@settings(max_examples=15)
def test_greedy_optimum_and_bounds_agree_with_the_bare_rules(pipeline, objective):
    result = proved(pipeline, objective=objective)
    value = result.ticks.value
    greedy = min(schedule.objective(objective) for _, schedule in baselines(pipeline))
    lower = [b for of in (bounds.work, bounds.machine, bounds.memory) if (b := of(pipeline, objective)) is not None]
    assert greedy >= value >= max(bound.value for bound in lower)
    # The rules alone, without cuts, bounds, start or tight horizon, know nothing better.
    far = horizon(pipeline)
    bare = cpsat.solve(
        pipeline,
        rules_of(pipeline),
        objective=objective,
        lower=0,
        upper=max(0, value - 1),
        horizon=far if objective == "makespan" else span_horizon(pipeline, far, free=False),
        limits=Limits.of(5, workers=1),
    )
    assert bare.schedule is None or value == 0


@given(pipelines(18, least=1))
@settings(max_examples=15)
def test_more_memory_is_never_slower_and_costs_scale(pipeline):
    value = proved(pipeline).ticks.value
    if pipeline.memory.limit is not None:
        more = dataclasses.replace(pipeline.memory, limit=pipeline.memory.limit + 1)
        assert proved(pipeline.changed(memory=more)).ticks.value <= value
    times = {
        name: None if getattr(pipeline.costs, name) is None else tuple(3 * x for x in getattr(pipeline.costs, name))
        for name in ("forward", "backward_input", "backward_weight", "backward")
    }
    links = Links(latency=3 * pipeline.links.latency)
    scaled = proved(pipeline.changed(costs=Costs(**times), links=links))
    assert Fraction(scaled.ticks.value, scaled.ticks.per_unit) == 3 * Fraction(value, pipeline.ticks.per_unit)
