"""Bounds and optima of random small pipelines under limits of memory."""

import dataclasses
from fractions import Fraction

from ppopt import bounds, cpsat
from ppopt.clock import Limits
from ppopt.constraints import rules_of
from ppopt.heuristics import baselines
from ppopt.pipeline.parts import Value
from ppopt.search import horizon, span_horizon
from tests.support.search import least, proved
from tests.support.strategies import changed, longer, objectives, pipelines
from tests.support.tiers import drawn


@drawn(5, 10, pipelines(18, least=1), objectives)
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


def larger(limit: Value) -> Value:
    """One activation more on each device."""
    return tuple(each + 1 for each in limit) if isinstance(limit, tuple) else limit + 1


@drawn(5, 10, pipelines(18, least=1))
def test_more_memory_is_never_slower_and_costs_scale(pipeline):
    value = proved(pipeline).ticks.value
    if pipeline.memory.limit is not None:
        more = dataclasses.replace(pipeline.memory, limit=larger(pipeline.memory.limit))
        assert least(changed(pipeline, memory=more)) <= value
    scaled = longer(pipeline, 3)
    assert Fraction(least(scaled), scaled.ticks.per_unit) == 3 * Fraction(value, pipeline.ticks.per_unit)
