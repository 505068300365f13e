"""Copies to the host: both solvers, the bounds, the checker and the search against all states of tiny pipelines."""

from dataclasses import replace

import pytest

from ppopt import bounds, cpsat, ilp
from ppopt.checker import Rule, violations
from ppopt.clock import Clock, Limits
from ppopt.constraints import cuts_of, free_choices, rules_of
from ppopt.heuristics import baselines
from ppopt.pipeline import Costs, Memory, Mix, Offload, Pipeline
from ppopt.pipeline.offload import copied
from ppopt.pipeline.rewriting import kept_here
from ppopt.search import solve
from ppopt.search.horizons import horizon
from ppopt.timing import broken
from tests.support.offloaded import Stepping, tiny, tiny_mix
from tests.support.tiers import thorough

QUICK = (3, 6, 15, 18, 27)
"""Of these some have no schedule as short as any bound, some a host with little room, and copies that take no time."""
MIXED = (7, 119, 121, 202, 206, 212, 222)
"""Lengths and factors, in the given order and in any, pieces, copies of some or of none that are open, one without a schedule."""
MORE_MIXED = (24, 103, 106, 109, 110, 111, 118, 124, 201, 203, 209, 211, 213)
SEEDS = [*QUICK, *(pytest.param(seed, marks=thorough) for seed in (1, 2, 5, 8, 10, 13, 19, 22, 28, 32, 39, 43, 46, 51, 53))]


def asked(pipeline: Pipeline, with_ilp: bool = False) -> int | None:
    """The least makespan by a solver, in ticks; what it finds keeps all rules."""
    words = (*rules_of(pipeline), *free_choices(pipeline), *cuts_of(pipeline))
    most = horizon(pipeline)
    solver = ilp if with_ilp else cpsat
    limits = Limits(Clock(60, deterministic=not with_ilp), 0.0, 1, 0)
    found = solver.solve(pipeline, words, objective="makespan", lower=0, upper=most, horizon=most, limits=limits)
    if found.schedule is None:
        assert found.lower_bound > most
        return None
    assert not violations(pipeline, found.schedule)
    assert not broken(found.schedule, words)
    assert found.lower_bound == found.schedule.makespan
    return found.schedule.makespan


@pytest.mark.parametrize("seed", SEEDS)
def test_the_least_makespan(seed: int) -> None:
    pipeline = tiny(seed)
    least = asked(pipeline)
    assert Stepping(pipeline).shorter(least or 60) is None
    for pairs in (False, True):
        for bound in (bounds.work, bounds.machine, bounds.memory):
            found = bound(pipeline, pairs=pairs)
            assert found is None or least is None or found.value <= least


@pytest.mark.parametrize("seed", [8, *(pytest.param(seed, marks=thorough) for seed in (3, 7, 10, 15, 18))])
def test_the_ilp_agrees(seed: int) -> None:
    pipeline = tiny(seed)
    assert asked(pipeline, with_ilp=True) == asked(pipeline)


def test_stepping_sees_what_is_shorter() -> None:
    pipeline = tiny(3)
    least = asked(pipeline)
    assert least is not None
    assert Stepping(pipeline).shorter(least + 1) == least


@thorough
@pytest.mark.parametrize("time", [0.5, 1])
def test_the_search_proves_it(time: float) -> None:
    pipeline = Pipeline(3, 4, memory=Memory(limit=2), offload=Offload(time=time))
    result = solve(pipeline, seconds=30, workers=1, deterministic=True)
    assert result.reason == "optimal"
    assert result.ticks.value == asked(pipeline)
    plain = solve(pipeline.changed(offload=None), seconds=30, workers=1, deterministic=True)
    assert plain.value is not None
    assert result.value is not None
    assert result.value <= plain.value
    left_out = {step.name for step in result.steps if "nothing of copies" in step.outcome}
    assert "bound: one machine" not in left_out


@thorough
def test_only_needed_copies_are_left() -> None:
    pipeline = Pipeline(2, 3, offload=Offload(time=0.5))
    result = solve(pipeline, seconds=10, workers=1, deterministic=True)
    assert result.schedule is not None
    assert not any(map(len, result.schedule.copies.rows))
    forced = pipeline.changed(offload=replace(pipeline.offload, stages="all"))
    result = solve(forced, seconds=10, workers=1, deterministic=True)
    assert result.schedule is not None
    assert sum(map(len, result.schedule.copies.rows)) == 12


@pytest.mark.parametrize("seed", [4, *(pytest.param(seed, marks=thorough) for seed in (1, 9, 17))])
def test_what_a_backward_takes_while_it_runs(seed: int) -> None:
    """What is held when it starts may be more than stays until the next one."""
    pipeline = tiny(seed, working=1)
    least = asked(pipeline)
    assert least is not None
    assert Stepping(pipeline).shorter(least) is None
    found = bounds.memory(pipeline)
    assert found is not None
    assert found.value <= least


@pytest.mark.parametrize("seed", [*MIXED, *(pytest.param(seed, marks=thorough) for seed in MORE_MIXED)])
def test_microbatches_that_differ(seed: int) -> None:
    """What is copied of a microbatch, and for how long, goes with what is held of it."""
    pipeline = tiny_mix(seed)
    least = asked(pipeline)
    assert asked(pipeline, with_ilp=True) == least
    assert Stepping(pipeline).shorter(60 if least is None else least + 1) == least
    for pairs in (False, True):
        for bound in (bounds.work, bounds.machine, bounds.memory):
            found = bound(pipeline, pairs=pairs)
            assert found is None or least is None or found.value <= least


@pytest.mark.parametrize(("seed", "copies"), [(115, True), (121, True), (204, False), (226, False)])
def test_a_working_set_is_as_large_as_its_microbatch(seed: int, copies: bool) -> None:
    check_working(seed, copies)


@thorough
@pytest.mark.parametrize(
    ("seed", "copies"),
    [(seed, True) for seed in (107, 111, 114, 201, 202, 206, 222)] + [(seed, False) for seed in (123, 201, 202, 205, 214, 227)],
)
def test_more_working_sets(seed: int, copies: bool) -> None:
    check_working(seed, copies)


def check_working(seed: int, copies: bool) -> None:
    """Brute force, both solvers, the bounds, and what list schedules are within."""
    pipeline = tiny_mix(seed, working=1)
    pipeline = pipeline if copies else kept_here(pipeline)
    assert pipeline.memory.limit is not None
    assert pipeline.amounts.more_working.any()
    least = asked(pipeline)
    assert least is not None
    assert asked(pipeline, with_ilp=True) == least
    assert Stepping(pipeline).shorter(least + 1) == least
    for bound in (bounds.machine, bounds.memory):
        found = bound(pipeline)
        assert found is None or found.value <= least
    if not copies:
        for name, schedule in baselines(pipeline):
            assert schedule.within_memory, name
            assert schedule.makespan >= least
            assert not violations(pipeline, schedule)


def test_equal_factors_are_alike() -> None:
    alike = tiny(3)
    for mix in (Mix(microbatch_costs=[1] * alike.microbatches), Mix(lengths=[5] * alike.microbatches, length=5)):
        mixed = alike.changed(mix=mix)
        assert rules_of(mixed) == rules_of(alike)
        assert [bounds.memory(each) for each in (mixed, alike)] == [bounds.memory(alike)] * 2
    half = alike.changed(mix=Mix(microbatch_costs=[0.5] * alike.microbatches, microbatch_activations=[1] * alike.microbatches))
    assert (half.amounts.away.tolist(), half.ticks.copying.tolist()) == (
        alike.amounts.away.tolist(),
        (alike.ticks.copying * half.ticks.per_unit // alike.ticks.per_unit).tolist(),
    )


def test_copies_that_take_no_time_are_as_good_as_no_limit() -> None:
    """All but the operation in hand may be away, which is at most what the largest microbatch holds: 3."""
    mix = Mix(lengths=[2, 3, 1], length=1, microbatch_order="choose")
    free = Pipeline(2, 3, costs=Costs(forward=1, backward=2), mix=mix)
    tight = free.changed(memory=Memory(limit=3))
    copied = tight.changed(offload=Offload(time=0))
    least = [asked(each) for each in (free, copied, tight)]
    assert None not in least
    assert least[0] == least[1] < least[2]  # type: ignore[operator]


def test_a_fraction_is_of_all_microbatches_of_a_way() -> None:
    """Each is on a route of its own; every other one is copied, by their numbers."""
    mix = Mix(microbatch_costs=[1, 2, 3, 4], microbatch_order="choose")
    pipeline = Pipeline(2, 4, mix=mix, offload=Offload(time=1, stages=[0.5, 0.25]))
    found = [[m for route in range(4) for m in copied(pipeline, route, stage) or ()] for stage in range(2)]
    assert found == [[1, 3], [3]]
    result = solve(pipeline, seconds=10, workers=1, deterministic=True)
    assert result.schedule is not None
    assert not violations(pipeline, result.schedule)
    every = pipeline.changed(offload=replace(pipeline.offload, stages="all"))
    assert any(v.rule == Rule.COPY for v in violations(every, replace(result.schedule, pipeline=every)))
