"""Random maps of work and weights: CP-SAT, the ILP and the attempt of every order say the same; no bound says more."""

from collections import Counter

import pytest
from hypothesis import Phase, given, settings

from ppopt import bounds, cpsat, ilp
from ppopt.checker import metrics, violations
from ppopt.constraints import cuts_of, free_choices, rules_of
from ppopt.heuristics import baselines
from ppopt.pipeline import Memory, Pipeline
from ppopt.search import solve
from ppopt.search.problem import Problem
from ppopt.timing import broken
from tests.support import tuned
from tests.support.mapped import by_trying, mapped
from tests.support.tiers import thorough
from tests.support.unaided import solved

FEW = pytest.mark.parametrize("examples", [1, pytest.param(21, marks=thorough)], ids=["few", "more"])


def no_bound_is_more(pipeline: Pipeline, best: int, count: Counter[str]) -> None:
    floor = 0
    for name in ("work", "machine", "memory"):
        bound = getattr(bounds, name)(pipeline, pairs=True)
        assert bound is None or bound.value <= best, name
        if bound is not None:
            count[name] += bound.value == best
            floor = max(floor, bound.value)
    for length in {floor // 2, floor // 3}:
        found = tuned.window(pipeline, length, length, makespan=floor, pairs=True)
        assert found is None or found.value <= best, "window"


@FEW
def test_everybody_says_the_same(examples: int) -> None:
    count: Counter[str] = Counter()

    @settings(max_examples=examples, phases=(Phase.generate,))
    @given(mapped())
    def on(pipeline: Pipeline) -> None:
        best = by_trying(pipeline)
        result = solve(pipeline, seconds=300, workers=1)
        if best is None:
            assert result.reason == "infeasible"
            return
        assert (result.ticks.value, result.reason) == (best, "optimal")
        assert result.schedule is not None
        assert violations(pipeline, result.schedule) == []
        peaks = metrics(pipeline, result.schedule).peak_memory
        assert [pipeline.amounts.per_unit * peak for peak in peaks] == list(result.schedule.peak_memory)
        no_bound_is_more(pipeline, best, count)
        problem = Problem(pipeline)
        assert not broken(result.schedule, problem.words)
        for name, schedule in baselines(pipeline)[:4]:
            assert schedule.makespan >= best or not schedule.within_memory, name
            if pipeline.memory.limit is None:
                assert violations(pipeline, schedule, earliest=True) == [], name
        count["all"] += 1
        count["backwards elsewhere"] += bool(pipeline.backward_routes)
        count["weights elsewhere"] += pipeline.memory.weights_on is not None and bool(pipeline.links.weights)
        count["memory between devices"] += bool(problem.words)

    on()
    assert count["all"]
    if examples > 20:
        assert min(count[key] for key in ("backwards elsewhere", "weights elsewhere", "memory between devices", "machine")) > 2


@thorough
def test_the_solvers_alone() -> None:
    """Without any bound or start, and without limits between devices, which the ILP cannot say."""
    decided = 0

    @settings(max_examples=8, phases=(Phase.generate,))
    @given(mapped(limits=False))
    def on(pipeline: Pipeline) -> None:
        nonlocal decided
        best = by_trying(pipeline)
        assert best is not None
        words = (*free_choices(pipeline), *cuts_of(pipeline))
        for solver in (cpsat, ilp):
            found = solved(solver, pipeline, "makespan", words, 10, deterministic=solver is cpsat)
            assert found.lower_bound <= best
            if found.schedule is not None:
                assert found.schedule.makespan >= best
                decided += found.lower_bound == found.schedule.makespan

    on()
    assert decided


def test_a_limit_between_devices_is_for_cp_sat() -> None:
    """Each holds half an activation: device 1 what device 0's first stage leaves behind, so that a second one has to wait."""
    fields = {"routes": [[0, 0]], "backward_routes": [[1, 0]]}
    free = Pipeline(2, 2, **fields)
    limited = Pipeline(2, 2, memory=Memory(limit=0.5), **fields)
    assert by_trying(limited) > by_trying(free)
    assert solve(limited, seconds=60, workers=1).ticks.value == by_trying(limited)
    assert rules_of(limited)
    with pytest.raises(ValueError, match=r'"ilp" takes a Capacity within one device only'):
        solve(limited, seconds=1, solver="ilp")
