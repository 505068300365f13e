"""Modulo scheduling: any number of microbatches, known optima, known periods."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ppopt import cpsat
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import always_split, cuts_of, graphs_of, rules_of, splitting_is_free
from ppopt.periodic import PeriodicSchedule
from ppopt.periodic.kernel import least_period
from ppopt.periodic.kernel_in_schedule import repeated_as
from ppopt.periodic.kernel_model import find_kernel
from ppopt.periodic.local_improvement import locally_improved
from ppopt.periodic.periodic_model import PeriodicModel, Question, search_model
from ppopt.periodic.periodic_schedule import microbatches_per_route, order_from, retimed, schedule_of
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.timing import time_order
from tests.support import tuned
from tests.support.tiers import thorough

REAL = Costs(forward=Fraction("18.5"), backward_input=Fraction("18.1"), backward_weight=Fraction("9.3"))

SPLIT = Costs(backward_input=1, backward_weight=1, backward=9)
"""A whole backward takes so long that all of the best schedule are split."""

PIPELINES = {
    "one device": Pipeline(1, 20, memory=Memory(limit=2)),
    "linear": Pipeline(3, 24, memory=Memory(limit=3)),
    "real costs": Pipeline(
        3, 24, costs=REAL, links=Links(latency=Fraction("0.6")), memory=Memory(limit=3, retained=Fraction("0.366"))
    ),
    "tight": Pipeline(4, 25, memory=Memory(limit=3)),
    "tighter at the end": Pipeline(3, 24, memory=Memory(limit=(3, 2, 1))),
    "wave": Pipeline(3, 24, placement="wave", chunks=2, memory=Memory(activation=2, limit=5)),
    "loop": Pipeline(2, 24, placement="loop", chunks=3, memory=Memory(activation=3, limit=9)),
    "fused": Pipeline(3, 24, costs=Costs(backward=2), memory=Memory(limit=3)),
    "uneven": Pipeline(3, 24, costs=Costs(forward=(1, 3, 2), backward_input=(2, 1, 2), backward_weight=(1, 2, 0))),
    "no input gradient on the first": Pipeline(2, 24, costs=Costs(backward_input=(0, 1)), memory=Memory(limit=2)),
    "choice of backward": Pipeline(2, 24, costs=Costs(backward=(1, 3)), memory=Memory(limit=2)),
    "a route of its own": Pipeline(2, 24, routes=((0, 1, 1, 0, 0),), memory=Memory(activation=1, limit=4)),
    "two routes": Pipeline(2, 24, placement="bidirectional", memory=Memory(limit=3)),
    "more retained than held": Pipeline(3, 24, costs=SPLIT, memory=Memory(retained=(2, 1, 3), limit=4)),
    "recompute": Pipeline(
        2,
        24,
        "wave",
        2,
        costs=replace(SPLIT, recompute=1),
        memory=Memory(recompute_saved=1, retained=1, limit=1),
        recompute="all",
    ),
    "slow links": Pipeline(2, 24, links=Links(latency=7), memory=Memory(limit=4)),
}


def periodic_of(pipeline: Pipeline, seconds: float = 1) -> PeriodicSchedule:
    found = tuned.periodic_schedule(
        pipeline, lower_bound=int(pipeline.work.max()), limits=Limits.of(seconds, workers=1, gap=0.03, deterministic=True)
    )
    assert found.periodic is not None
    assert found.schedule is not None
    assert violations(pipeline, found.schedule) == []
    return found.periodic


@pytest.mark.parametrize("name", [pytest.param(name, marks=thorough if name.startswith("tight") else ()) for name in PIPELINES])
def test_every_number_of_microbatches(name: str) -> None:
    """The makespan of each expansion is at most the promised one: the re-timed order can only be earlier."""
    pipeline = PIPELINES[name]
    periodic = periodic_of(pipeline)
    assert periodic.is_valid()
    for copies in (0, 1, 2, 7, 40):
        counts = [count + copies * periodic.unroll for count in periodic.microbatches]
        larger = pipeline.changed(microbatches=sum(counts))
        schedule = time_order(larger, order_from(larger, periodic.graph, periodic.expanded(copies)))
        assert violations(larger, schedule) == []
        promised = periodic.makespan_for(counts)
        assert promised is not None
        assert schedule.makespan <= promised
        assert promised == periodic.makespan + copies * periodic.period


def direct(pipeline: Pipeline) -> int:
    split = always_split(pipeline) if splitting_is_free(pipeline) else ()
    words = (*rules_of(pipeline), *split, *cuts_of(pipeline))
    horizon = 8 * int(pipeline.work.max()) + 40 * int(pipeline.ticks.latency.max())
    found = cpsat.solve(
        pipeline, words, objective="makespan", lower=0, upper=horizon, horizon=horizon, limits=Limits.of(60, workers=1)
    )
    assert found.schedule is not None
    assert found.lower_bound == found.schedule.makespan
    return found.lower_bound


SMALL = [
    Pipeline(2, 6, memory=Memory(limit=2)),
    Pipeline(3, 7, memory=Memory(limit=3)),
    pytest.param(Pipeline(3, 7, memory=Memory(limit=2)), marks=thorough),
    Pipeline(2, 7, placement="wave", chunks=2, memory=Memory(activation=2, limit=3)),
    Pipeline(2, 7, placement="loop", chunks=2, memory=Memory(activation=2, limit=4)),
    Pipeline(2, 6, costs=Costs(forward=(3, 2), backward_input=(2, 3)), links=Links(latency=1), memory=Memory(limit=3)),
    Pipeline(3, 7, costs=Costs(backward=2), memory=Memory(limit=3)),
    Pipeline(3, 7, costs=Costs(forward=(3, 2, 4)), links=Links(latency=1), memory=Memory(limit=(3, 2, 1), retained=0.5)),
    Pipeline(2, 6, placement="wave", chunks=2, costs=Costs(forward=4), links=Links(latency=1), memory=Memory(limit=2)),
    Pipeline(2, 8, placement="bidirectional", memory=Memory(limit=3)),
    pytest.param(Pipeline(2, 6, costs=SPLIT, memory=Memory(retained=2, limit=4)), marks=thorough),
    Pipeline(2, 6, costs=SPLIT, memory=Memory(retained=2, limit=3)),
    pytest.param(Pipeline(3, 6, costs=SPLIT, memory=Memory(retained=(2, 1, 3), limit=4)), marks=thorough),
    Pipeline(2, 6, costs=replace(SPLIT, recompute=1), memory=Memory(recompute_saved=1, retained=1, limit=2), recompute="all"),
]  # fmt: skip


def size(value: object) -> str:
    return f"{value.placement} D={value.devices} M={value.microbatches}" if isinstance(value, Pipeline) else str(value)


@pytest.mark.parametrize("pipeline", SMALL, ids=size)
def test_the_same_optimum_as_a_direct_search(pipeline: Pipeline) -> None:
    optimum = direct(pipeline)
    found = tuned.periodic_schedule(pipeline, lower_bound=optimum, limits=Limits.of(20, workers=1))
    assert found.schedule is not None
    assert found.schedule.makespan == optimum


@pytest.mark.parametrize(
    ("pipeline", "constant"),
    [
        (Pipeline(4, 1024, memory=Memory(limit=4)), 3),
        pytest.param(Pipeline(4, 1024, placement="wave", chunks=2, memory=Memory(activation=2, limit=8)), 3, marks=thorough),
        (Pipeline(4, 1024, placement="wave", chunks=2, memory=Memory(activation=2, limit=4)), 11),
        pytest.param(Pipeline(4, 1024, placement="loop", chunks=2, memory=Memory(activation=2, limit=6)), 5, marks=thorough),
    ],
    ids=size,
)
def test_known_optima_at_a_thousand_microbatches(pipeline: Pipeline, constant: int) -> None:
    """Work of a device + the least idle time, which the window certificates prove for these."""
    optimum = int(pipeline.work.max()) + constant
    found = tuned.periodic_schedule(pipeline, lower_bound=optimum, limits=Limits.of(60, workers=1))
    assert found.schedule is not None
    assert found.schedule.makespan == optimum
    assert violations(pipeline, found.schedule) == []


@pytest.mark.parametrize(("limit", "step", "period"), [(3, 1, 4), (3, 2, 7), (3, 3, 10), (2, 1, 5), (4, 1, 3)])
def test_smallest_periods_under_a_memory_limit(limit: int, step: int, period: int) -> None:
    """Unit costs on four devices: 10/3 per microbatch with room for three, 5 with room for two."""
    (graph,) = graphs_of(Pipeline(4, 32, memory=Memory(limit=limit)))
    limits = Limits.of(30, workers=1)
    assert least_period(graph, step) <= period
    assert find_kernel(graph, period - 1, step, limits, 20) == (None, True)
    found, sure = find_kernel(graph, period, step, limits, 20)
    assert found is not None
    assert sure
    assert found.with_ends((32,)).is_valid()


@pytest.mark.parametrize(("step", "period"), [(1, 1146), (2, 2226)])
def test_smallest_periods_of_two_chunks(step: int, period: int) -> None:
    """A V with half of 1F1B's memory, which placing operations one by one does not reach; schedules for every number."""
    pipeline = Pipeline(
        4, 32, placement="wave", chunks=2, costs=REAL, links=Links(latency=Fraction("0.6")), memory=Memory(limit=2)
    )
    (graph,) = graphs_of(pipeline)
    limits = Limits.of(30, workers=1)
    assert find_kernel(graph, period - 1, step, limits, 20) == (None, True)
    found, sure = find_kernel(graph, period, step, limits, 20)
    assert found is not None
    assert sure
    for microbatches in (20, 33, 64):
        larger = pipeline.changed(microbatches=microbatches)
        periodic = found.with_ends((microbatches,))
        assert periodic.is_valid()
        schedule = schedule_of(larger, periodic)
        assert violations(larger, schedule) == []
        assert schedule.makespan <= (periodic.makespan_for((microbatches,)) or 0)


@pytest.mark.parametrize("name", ["linear", "fused", "slow links", "two routes"])
def test_a_schedule_has_a_period_in_its_middle(name: str) -> None:
    """As long as the schedule is; the same with one period more, and more of its order where that is taken from another place."""
    pipeline = PIPELINES[name]
    (graph,) = graphs_of(pipeline)
    expanded = schedule_of(pipeline, periodic_of(pipeline, 1))
    found = tuned.kernel_in(expanded, graph)
    assert found is not None
    assert found.makespan_for(microbatches_per_route(pipeline)) == expanded.makespan
    small = pipeline.changed(microbatches=sum(found.microbatches) + 3 * found.unroll * len(pipeline.routes))
    schedule = schedule_of(small, found)
    for more in range(4):
        again = repeated_as(schedule, found, more)
        assert again is not None
        assert again.makespan == schedule.makespan


def example() -> PeriodicSchedule:
    return periodic_of(PIPELINES["wave"])


def test_a_moved_operation_is_noticed() -> None:
    """An operation started together with another of its device."""
    periodic = example()
    for _, families in periodic.graph.machines[: periodic.graph.devices]:
        for o in families:
            for n in range(len(periodic.start[o])):
                rows = [row.copy() for row in periodic.start]
                other = next(p for p in families if p != o)
                rows[o][n] = rows[other][0]
                assert not replace(periodic, start=tuple(rows)).is_valid()


def test_a_shorter_period_is_not_repeatable() -> None:
    periodic = example()
    least = max(periodic.graph.work_per_microbatch) * periodic.unroll
    assert retimed(periodic, periodic.graph, least - 1) is None
    same = retimed(periodic, periodic.graph, periodic.period)
    assert same is not None
    assert same.is_valid()
    assert same.makespan <= periodic.makespan


def test_retiming_with_other_costs() -> None:
    """The order of unit costs, with costs three times as long and one more for the forwards."""
    periodic = example()
    longer = tuple(3 * time + (i < 6) for i, time in enumerate(periodic.graph.duration))
    graph = replace(periodic.graph, duration=longer)
    found = retimed(periodic, graph, 4 * periodic.period)
    assert found is not None
    assert found.is_valid()


def test_polish_keeps_the_rules_and_never_lengthens() -> None:
    pipeline = PIPELINES["wave"]
    (graph,) = graphs_of(pipeline)
    limits = Limits.of(20, workers=1)
    rough, _ = find_kernel(graph, max(graph.work_per_microbatch), 1, limits, 10)
    assert rough is not None
    begun = rough.with_ends((pipeline.microbatches,))
    better, _ = locally_improved(begun, limits, reach=3, seconds=3)
    assert better.is_valid()
    assert better.makespan <= begun.makespan
    larger = pipeline.changed(microbatches=len(better.start[0]) + 9)
    schedule = time_order(larger, order_from(larger, graph, better.expanded(9)))
    assert violations(larger, schedule) == []


def test_a_makespan_below_the_optimum_is_refuted() -> None:
    """Four devices with room for four: work 3M and 3 idle, so 2 idle cannot be."""
    (graph,) = graphs_of(Pipeline(4, 32, memory=Memory(limit=4)))
    limits = Limits.of(60, workers=1)
    for count in (4, 6, 8):
        assert search_model(PeriodicModel(graph, Question((count,), 3 * count + 2, 3)), limits, 20) == (None, True)
    found, _ = search_model(PeriodicModel(graph, Question((6,), 21, 3)), limits, 20)
    assert found is not None
    assert found.makespan == 21


@pytest.mark.parametrize("pipeline", [Pipeline(1, 1), Pipeline(3, 1), Pipeline(4, 2, memory=Memory(limit=1))], ids=size)
def test_too_few_microbatches_to_repeat(pipeline: Pipeline) -> None:
    """Nothing is promised; what is found is a schedule."""
    found = tuned.periodic_schedule(pipeline, lower_bound=int(pipeline.work.max()), limits=Limits.of(2, workers=1))
    assert found.schedule is None or violations(pipeline, found.schedule) == []


def test_what_takes_no_time_has_no_period() -> None:
    nothing = Pipeline(2, 5, costs=Costs(forward=0, backward_input=0, backward_weight=0), memory=Memory(limit=1))
    found = tuned.periodic_schedule(nothing, lower_bound=0, limits=Limits.of(2, workers=1))
    assert found.schedule is None or found.schedule.makespan == 0


def test_deterministic_runs_repeat() -> None:
    pipeline = PIPELINES["wave"]
    first, second = (
        tuned.periodic_schedule(pipeline, lower_bound=int(pipeline.work.max()) + 2, limits=Limits.of(0.5, deterministic=True))
        for _ in range(2)
    )
    assert first.schedule is not None
    assert second.schedule is not None
    assert first.schedule.order == second.schedule.order
    assert [asked.answer for asked in first.asked] == [asked.answer for asked in second.asked]


def test_only_what_beats_the_given_value_is_returned() -> None:
    pipeline = PIPELINES["linear"]
    optimum = int(pipeline.work.max()) + 2
    assert tuned.periodic_schedule(pipeline, lower_bound=optimum, limits=Limits.of(5, workers=1), upper=optimum).schedule is None
    assert np.all(
        [
            asked.seconds >= 0
            for asked in tuned.periodic_schedule(pipeline, lower_bound=optimum, limits=Limits.of(5, workers=1)).asked
        ]
    )


def test_what_was_found_before_an_interrupt_is_kept() -> None:
    shown = []

    def interrupt(value: int | None, lower: int) -> None:
        shown.append(value)
        raise KeyboardInterrupt

    pipeline = PIPELINES["wave"]
    found = tuned.periodic_schedule(pipeline, lower_bound=0, limits=Limits.of(20, workers=1), progress=interrupt)
    assert found.interrupted
    assert found.schedule is not None
    assert [found.schedule.makespan] == shown
