"""Tabu search: how good what it finds is, when it ends, and what it is not for."""

import numpy as np
import pytest
from hypothesis import given, settings

from ppopt import cpsat, tabu
from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import cuts_of, free_choices
from ppopt.heuristics import baselines
from ppopt.named import compare
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Offload, Pipeline
from ppopt.schedule import Schedule
from tests.support.cases import worst
from tests.support.strategies import pipelines
from tests.support.tiers import thorough
from tests.support.unaided import optimum

PIPELINES = {
    "one stage each": Pipeline(3, 5, costs=Costs(forward=4, backward_input=3, backward_weight=3), memory=Memory(limit=2)),
    "wave": Pipeline(
        2, 4, placement="wave", chunks=2, costs=Costs(forward=4, backward_input=4, backward_weight=2), memory=Memory(limit=3)
    ),
    "links": Pipeline(3, 3, links=Links(1, occupancy=2), costs=Costs(forward=3, backward_input=4, backward_weight=3)),
}


def improved(start: Schedule, objective: Objective, lower: int = 0, seconds: float = 3.0, seed: int = 0) -> Schedule:
    found = tabu.improved(start, objective=objective, lower=lower, limits=Limits.of(seconds, deterministic=True), seed=seed)
    return found.schedule or start


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("name", PIPELINES)
def test_the_worst_list_schedule_becomes_an_optimum(name: str, objective: Objective) -> None:
    pipeline = PIPELINES[name]
    best = optimum(cpsat, pipeline, objective, (*free_choices(pipeline), *cuts_of(pipeline)))
    found = improved(worst(pipeline, objective), objective)
    assert violations(pipeline, found) == []
    assert found.objective(objective) == best


def test_no_better_than_what_is_proved() -> None:
    """It stops at the bound, at once."""
    pipeline = Pipeline(4, 8)
    start = worst(pipeline, "makespan")
    told: list[int | None] = []
    limits = Limits.of(60)
    outcome = tabu.improved(
        start, objective="makespan", lower=27, limits=limits, seed=0, progress=lambda value, bound: told.append(value)
    )
    assert outcome.schedule is not None
    assert outcome.schedule.makespan == 27
    assert told[-1] == 27
    assert limits.clock.spent < 30
    assert tabu.improved(outcome.schedule, objective="makespan", lower=27, limits=Limits.of(60), seed=0).schedule is None


def test_it_ends_where_nothing_is_found_any_more() -> None:
    """Long before its time: what it may do in vain depends on the moves alone."""
    limits = Limits.of(10_000, deterministic=True)
    start = improved(worst(PIPELINES["wave"], "makespan"), "makespan")
    assert tabu.improved(start, objective="makespan", lower=0, limits=limits, seed=1).schedule is None
    assert limits.clock.spent < 100


def test_without_time_nothing_is_done() -> None:
    start = worst(PIPELINES["wave"], "makespan")
    assert tabu.improved(start, objective="makespan", lower=0, limits=Limits.of(0), seed=1).schedule is None


def test_the_same_again() -> None:
    pipeline = Pipeline(
        4, 12, placement="wave", chunks=2, costs=Costs(forward=10, backward_input=9, backward_weight=6), memory=Memory(limit=3)
    )
    start = worst(pipeline, "span")
    one, other = (improved(start, "span", seconds=0.1) for _ in range(2))
    assert [row.tolist() for row in one.order.rows] == [row.tolist() for row in other.order.rows]
    assert one.device_span < start.device_span


def test_it_goes_on_where_it_stopped() -> None:
    """In many short searches one comes as far as in a long one, and never gives back what was found."""
    pipeline = Pipeline(
        4, 12, placement="wave", chunks=2, costs=Costs(forward=10, backward_input=9, backward_weight=6), memory=Memory(limit=3)
    )
    start = worst(pipeline, "makespan")
    search, value, values = tabu.Search(start, "makespan", seed=0), start.makespan, []
    for _ in range(30):
        outcome = search.improved(value, 0, Limits.of(0.004, deterministic=True))
        value = value if outcome.schedule is None else outcome.schedule.makespan
        values.append(value)
    assert values == sorted(values, reverse=True)
    assert len(set(values)) > 2
    assert value <= 1.03 * improved(start, "makespan", seconds=0.12).makespan


def test_walks_begin_at_all_that_are_given() -> None:
    """The worst of two schedules and the best, given later, or as the first: no worse than the best."""
    pipeline = PIPELINES["wave"]
    schedules = sorted((schedule for _, schedule in baselines(pipeline)), key=lambda each: each.makespan)
    for first, second in ((schedules[-1], schedules[0]), (schedules[0], schedules[-1])):
        search = tabu.Search(first, "makespan", seed=0)
        assert search.begin_at(second)
        outcome = search.improved(schedules[-1].makespan, 0, Limits.of(1e-4, deterministic=True))
        assert outcome.schedule is not None
        assert outcome.schedule.makespan <= schedules[0].makespan


def test_other_operations_are_no_begin() -> None:
    """One has pairs of a forward and a backward, the other one has none."""
    pipeline = Pipeline(2, 6, placement="bidirectional", costs=Costs(forward=3, backward_input=3, overlap=5))
    plain = worst(pipeline, "makespan")
    (paired,) = (row.schedule for row in compare(pipeline, (1,)) if row.name == "dualpipe")
    assert paired is not None
    assert len(np.concatenate(paired.order.rows)) < len(np.concatenate(plain.order.rows))
    assert not tabu.Search(plain, "makespan", seed=0).begin_at(paired)
    assert tabu.Search(paired, "makespan", seed=0).begin_at(paired)


@thorough
@settings(max_examples=75)
@given(pipelines(least=1, limited=True))
def test_hardly_ever_worse_than_the_optimum(pipeline: Pipeline) -> None:
    """Of small pipelines: within a tenth of the exact optimum, and never below it."""
    best = optimum(cpsat, pipeline, "makespan", (*free_choices(pipeline), *cuts_of(pipeline)))
    starts = [schedule for _, schedule in baselines(pipeline)]
    found = min(improved(start, "makespan", seconds=0.2).makespan for start in starts)
    assert best is not None
    assert best <= found <= 1.1 * best


@pytest.mark.parametrize(
    ("pipeline", "reason"),
    [
        (Pipeline(2, 3, placement="loop", chunks=2, data_parallel=DataParallel(1, overlap=True)), "stage by stage"),
        (Pipeline(2, 3, placement="loop", chunks=2, data_parallel=DataParallel(1, per_pass=True)), "stage by stage"),
        (Pipeline(2, 3, links=Links(occupancy=1, blocking=True)), "block"),
        (Pipeline(2, 3, memory=Memory(limit=2), offload=Offload(time=1, host_limit=3)), "copies to the host"),
    ],
)
def test_what_is_unknown(pipeline: Pipeline, reason: str) -> None:
    assert reason in str(tabu.unknown(pipeline))


def test_numbers_that_are_too_large() -> None:
    """Paths of more than 2^58 ticks: nothing is said, rather than something wrong."""
    pipeline = Pipeline(2, 4, costs=Costs(forward=5 * 10**16, backward_input=5 * 10**16, backward_weight=1))
    start = worst(pipeline, "makespan")
    assert tabu.improved(start, objective="makespan", lower=0, limits=Limits.of(1), seed=0).schedule is None
