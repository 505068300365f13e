"""What engines and the host can have away in the time: never above an optimum, and all of it where memory is tight."""

from __future__ import annotations

import random

import pytest

from ppopt import bounds, cpsat
from ppopt.checker import violations
from ppopt.clock import Clock, Limits
from ppopt.constraints import cuts_of, free_choices, rules_of
from ppopt.pipeline import Costs, Memory, Offload, Pipeline
from ppopt.schedule import Objective, Schedule
from ppopt.search import solve
from ppopt.search.horizons import horizon
from tests.support.tiers import thorough

TIGHT = {0.25: 32, 0.5: 36, 1: 44, 2: 58}
"""By the time of a copy the best makespan of 4 devices and 8 microbatches, of which one fits."""


def memory(pipeline: Pipeline, objective: Objective = "makespan") -> float:
    """The bound in the user's unit."""
    found = bounds.memory(pipeline, objective)
    assert found is not None
    return float(pipeline.time(found.value))


def several(seed: int) -> Pipeline:
    """Two stages on each of one or two devices, with times of their own for each way, and what else there may be."""
    rng = random.Random(seed)
    devices = rng.choice([1, 2])
    stages = range(2 * devices)
    return Pipeline(
        devices,
        rng.choice([2, 3]) if devices == 1 else 2,
        placement=rng.choice(["loop", "wave"]),
        chunks=2,
        costs=Costs(per="stage", forward=[rng.randint(1, 3) for _ in stages], backward=[rng.randint(1, 3) for _ in stages]),
        memory=Memory(activation=[rng.randint(2, 3) for _ in stages], limit=rng.choice([5, 6, 8])),
        offload=Offload(
            time=[rng.randint(0, 3) for _ in stages],
            time_in=[rng.randint(0, 3) for _ in stages],
            amount=[rng.randint(1, 2) for _ in stages],
            engines=rng.choice([1, 2]),
            shared=rng.choice([[], [[0, 1]]]) if devices == 2 else [],
            margin=rng.choice([0, 1]),
            host_limit=rng.choice([None, 3, 4]),
            stages=rng.choice(["choose", "choose", "all", "half", 0.5]),
        ),
    )


def best(pipeline: Pipeline) -> Schedule | None:
    """The shortest schedule; ``None``: there is none."""
    words = (*rules_of(pipeline), *free_choices(pipeline), *cuts_of(pipeline))
    most = horizon(pipeline)
    limits = Limits(Clock(20, deterministic=True), 0.0, 1, 0)
    found = cpsat.solve(pipeline, words, objective="makespan", lower=0, upper=most, horizon=most, limits=limits)
    assert found.schedule is None or found.lower_bound == found.schedule.makespan
    return found.schedule


@pytest.mark.parametrize("time", TIGHT)
def test_room_for_one(time: float) -> None:
    assert memory(Pipeline(4, 8, memory=Memory(limit=1), offload=Offload(time=time))) == TIGHT[time]


@thorough
def test_room_for_one_is_proved() -> None:
    result = solve(Pipeline(4, 8, memory=Memory(limit=1), offload=Offload(time=1)), seconds=30, workers=1, deterministic=True)
    assert (result.reason, result.value) == ("optimal", TIGHT[1])


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=thorough) for first in (4, 8, 12, 108))])
def test_never_above_an_optimum(first: int) -> None:
    for seed in range(first, first + 4):
        pipeline = several(seed)
        schedule = best(pipeline)
        if schedule is None:
            continue
        assert not violations(pipeline, schedule)
        for pairs in (False, True):
            found, spans = (bounds.memory(pipeline, of, pairs=pairs) for of in ("makespan", "span"))
            assert found is not None
            assert spans is not None
            assert found.value <= schedule.makespan, seed
            assert spans.value <= schedule.device_span, seed


def test_copies_each_way_have_engines_of_their_own() -> None:
    """Two stages of one device, one slow to copy out, the other to copy in: each engine makes both in four, not in six."""
    memory_ = Memory(activation=3, limit=6)
    costs = Costs(per="stage", forward=1, backward=1)
    both, slow = (
        memory(Pipeline(1, 8, placement="loop", chunks=2, costs=costs, memory=memory_, offload=Offload(**times, stages="all")))
        for times in ({"time": [1, 3], "time_in": [3, 1]}, {"time": 3})
    )
    assert both >= 8 * 4
    assert slow >= 8 * 6
    assert both < slow


def test_a_shared_engine_makes_the_copies_of_all() -> None:
    def of(**more: object) -> Pipeline:
        return Pipeline(2, 8, memory=Memory(), offload=Offload(time=2, stages="all", **more))  # type: ignore[arg-type]

    assert memory(of(shared=[[0, 1]])) >= 2 * 2 * 8
    assert memory(of(shared=[[0, 1]], engines=1)) >= 2 * 2 * 2 * 8
    assert memory(of(engines=1)) >= 2 * 2 * 8


def test_the_host_has_no_more_room_than_it_has() -> None:
    free, tight = (
        memory(Pipeline(3, 6, memory=Memory(limit=1), offload=Offload(time=0.25, host_limit=host))) for host in (None, 0.5)
    )
    without = solve(Pipeline(3, 6, memory=Memory(limit=1)), seconds=10, workers=1, deterministic=True).value
    assert without is not None
    assert free < tight <= without
