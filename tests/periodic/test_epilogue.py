"""Prologue and epilogue."""

import random

import pytest

from ppopt.clock import Clock, Limits
from ppopt.periodic import PeriodicSchedule
from ppopt.periodic.epilogue import reversed_periodic, shortened_by_cpsat, shortened_by_list_scheduling
from tests.support.periodic import PIPELINES, examples, keeps_the_rules


@pytest.mark.parametrize("name", [name for name in PIPELINES if name != "nothing takes time"])
def test_ends_get_shorter_and_keep_the_rules(name: str) -> None:
    before = examples(name, 2)[0]
    limits = Limits.of(60, workers=1)
    after, chance, turned = before, random.Random(7), before.graph.reversed()
    for side in range(2):
        end = reversed_periodic(after, turned) if side else after
        for shorter in (
            shortened_by_list_scheduling(end, Clock(1, deterministic=True), trials=12, chance=chance),
            shortened_by_cpsat(end, limits, reach=100, seconds=2)[0],
        ):
            assert shorter.makespan <= end.makespan
            assert shorter.prologue == end.prologue
            found = reversed_periodic(shorter, before.graph) if side else shorter
            keeps_the_rules(name, found)
            after = found
    assert after.makespan <= before.makespan


def test_a_poor_end_is_repaired() -> None:
    """The last operations of every device moved back by 50: list scheduling moves them forward again."""
    good = examples("wave", 1)[0]
    rows = []
    for row, first in zip(good.start, good.prologue, strict=True):
        late = row.copy()
        late[first + good.unroll :] += 50
        rows.append(late)
    poor = PeriodicSchedule(good.graph, tuple(rows), good.prologue, good.period, good.unroll)
    assert poor.is_valid()
    clock = Clock(1, deterministic=True)
    assert shortened_by_list_scheduling(poor, clock, trials=4, chance=random.Random(0)).makespan <= good.makespan
    clock.charge(1)
    assert shortened_by_list_scheduling(poor, clock, trials=4, chance=random.Random(0)) is poor


def test_reversed_twice_is_the_same() -> None:
    periodic = examples("wave", 1)[0]
    turned = periodic.graph.reversed()
    once = reversed_periodic(periodic, turned)
    assert once.is_valid()
    assert once.makespan == periodic.makespan
    assert turned.reversed() == periodic.graph
    twice = reversed_periodic(once, periodic.graph)
    assert twice.prologue == periodic.prologue
    assert all((a == b).all() for a, b in zip(twice.start, periodic.start, strict=True))
