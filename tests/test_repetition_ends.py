"""Periods by placing operations, ends by list scheduling, both after fewer devices: every one is a schedule for every number of
microbatches."""

import random
from fractions import Fraction
from itertools import islice

import pytest
import tuned

from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import FamilyGraph, graphs_of
from ppopt.periodic import PeriodicSchedule, stretched
from ppopt.periodic.epilogue import reversed_periodic, shortened_by_cpsat, shortened_by_list_scheduling
from ppopt.periodic.periodic_schedule import order_from, retimed
from ppopt.pipeline import Costs, Links, Memory, Pipeline, fewer_devices
from ppopt.timing import time_order

REAL = Costs(forward=185, backward_input=181, backward_weight=93)
LINKS = Links(latency=6)
PIPELINES = {
    "one device": Pipeline(1, 40),
    "linear": Pipeline(4, 40, memory=Memory(limit=3)),
    "real costs": Pipeline(4, 40, costs=REAL, links=LINKS, memory=Memory(limit=3, retained=Fraction("0.366"))),
    "wave": Pipeline(4, 40, placement="wave", chunks=2, costs=REAL, links=LINKS, memory=Memory(activation=1, limit=3)),
    "loop": Pipeline(3, 40, placement="loop", chunks=2, costs=REAL, links=LINKS, memory=Memory(activation=1, limit=2)),
    "two routes": Pipeline(2, 40, placement="bidirectional", memory=Memory(limit=3)),
    "uneven": Pipeline(3, 40, costs=Costs(forward=(1, 30, 2), backward_input=(2, 1, 20), backward_weight=(1, 2, 0))),
    "fused": Pipeline(3, 40, costs=Costs(backward=2), memory=Memory(limit=3)),
    "slow links": Pipeline(2, 40, links=Links(latency=70), memory=Memory(limit=4)),
    "nothing takes time": Pipeline(2, 40, costs=Costs(forward=0, backward_input=0, backward_weight=0)),
}


def graph_of(name: str) -> FamilyGraph:
    return graphs_of(PIPELINES[name])[0]


def keeps_the_rules(name: str, periodic: PeriodicSchedule) -> None:
    """The checker has nothing against it, with none, one and five periods more."""
    assert periodic.is_valid()
    for copies in (0, 1, 5):
        counts = [count + copies * periodic.unroll for count in periodic.microbatches]
        pipeline = PIPELINES[name].changed(microbatches=sum(counts))
        schedule = time_order(pipeline, order_from(pipeline, periodic.graph, periodic.expanded(copies)))
        assert violations(pipeline, schedule) == []
        promised = periodic.makespan_for(counts)
        assert promised is not None
        assert schedule.makespan <= promised


def examples(name: str, unroll: int) -> list[PeriodicSchedule]:
    routes = len(PIPELINES[name].routes)
    found = (kernel for kernel in tuned.placed_kernels(graph_of(name), unroll) if kernel is not None)
    return [kernel.with_ends((40 // routes,) * routes) for kernel in islice(found, 2)]


@pytest.mark.parametrize("unroll", [1, 3])
@pytest.mark.parametrize("name", PIPELINES)
def test_what_is_placed_repeats(name: str, unroll: int) -> None:
    found = examples(name, unroll)
    assert bool(found) == (name != "nothing takes time")
    for periodic in found:
        keeps_the_rules(name, periodic)


@pytest.mark.parametrize("name", ["linear", "real costs", "wave", "loop", "uneven"])
def test_the_period_is_the_shortest_for_its_turns(name: str) -> None:
    for periodic in examples(name, 1):
        assert retimed(periodic, periodic.graph, periodic.period) is not None
        if periodic.period > max(periodic.graph.work_per_microbatch):
            assert retimed(periodic, periodic.graph, periodic.period - 1) is None


def test_full_speed_for_many_devices() -> None:
    """Room for three quarters of what 1F1B holds costs a wave no throughput: no time passes between two microbatches but work."""
    pipeline = Pipeline(16, 64, placement="wave", chunks=2, costs=REAL, links=LINKS, memory=Memory(activation=1, limit=12))
    (graph,) = graphs_of(pipeline)
    assert min(found.period for found in tuned.placed_kernels(graph, 1) if found is not None) == max(graph.work_per_microbatch)


@pytest.mark.parametrize("name", [name for name in PIPELINES if name != "nothing takes time"])
def test_ends_get_shorter_and_keep_the_rules(name: str) -> None:
    before = examples(name, 2)[0]
    limits = Limits.of(60, workers=1)
    after, chance, turned = before, random.Random(7), before.graph.reversed()
    for side in range(2):
        end = reversed_periodic(after, turned) if side else after
        for shorter in (
            shortened_by_list_scheduling(end, trials=12, chance=chance),
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
    assert shortened_by_list_scheduling(poor, trials=4, chance=random.Random(0)).makespan <= good.makespan


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


@pytest.mark.parametrize("placement", ["wave", "loop"])
def test_many_devices_after_few(placement: str) -> None:
    """With three quarters of 1F1B's memory 3 D / 4 - 1 / 2 idle ticks are proved: 4 devices need no more, 12 not much more."""
    pipeline = Pipeline(12, 60, placement=placement, chunks=2, memory=Memory(limit=9))
    small, per_unit = fewer_devices(pipeline, 4), pipeline.ticks.per_unit
    found = tuned.periodic_schedule(small, lower_bound=int(per_unit * (3 * 60 + 2.5)), limits=Limits.of(20, workers=1)).periodic
    assert found is not None
    found = found.with_more_kernels((20 - found.microbatches[0]) // found.unroll)
    schedules = [schedule for _, schedule in stretched(found, pipeline)]
    assert all(not violations(pipeline, schedule) for schedule in schedules)
    values = [tuned.repeated_value(schedule, graphs_of(pipeline), 1024) for schedule in schedules]
    assert min(value for value in values if value is not None) <= per_unit * (3 * 1024 + 12)
