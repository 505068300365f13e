"""Frontiers: proved or with a stated gap, monotone, never above a named schedule that fits, and equal to what is known."""

import itertools
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import strategies as st

from ppopt.checker import violations
from ppopt.named import find
from ppopt.pipeline import Costs, Links, Memory, Offload, Pipeline
from ppopt.search import solve, solve_closed
from ppopt.study import frontier as frontier_module
from ppopt.study.frontier import Frontier, frontier, frontier_dict, ways
from ppopt.study.limits import least_scale, limited, rearranged
from tests.support.tiers import drawn, thorough

GPT = {
    "costs": Costs(forward=185, backward_input=181, backward_weight=93),
    "links": Links(latency=6),
    "memory": Memory(activation=1, retained=Fraction(366, 1000)),
}


def values(line: Frontier) -> dict[Any, Any]:
    return {float(point.scale): point.result.value or 0 for point in line.points}


def holds(line: Frontier) -> None:
    """What is true of every frontier."""
    for point in line.points:
        result = point.result
        assert result.value is not None
        assert result.lower_bound <= result.value
        assert (result.reason == "optimal") == (result.lower_bound == result.value)
        assert result.schedule is not None
        assert result.schedule.objective(line.objective) == result.ticks.value
        assert result.schedule.within_memory
        assert not violations(result.pipeline, result.schedule)
        for row in line.named:
            same = row.schedule is not None and row.schedule.pipeline.routes == line.pipeline.routes
            if same and line.needed(row.schedule) <= point.scale:  # type: ignore[arg-type]
                assert result.ticks.value <= row.schedule.objective(line.objective)  # type: ignore[union-attr, operator]
    for less, more in itertools.pairwise(line.points):
        assert less.scale < more.scale
        assert less.result.value >= more.result.value  # type: ignore[operator]
        assert less.result.lower_bound >= more.result.lower_bound


def test_unit_costs() -> None:
    line = frontier(Pipeline(4, 8), seconds=30)
    holds(line)
    assert values(line) == {1: 72, 2: 41, 3: 31, 4: 27}
    assert all(point.result.reason == "optimal" for point in line.points)
    assert all(point.result.proved_by for point in line.points)


@thorough
def test_the_tight_memory_table() -> None:
    """Proved elsewhere by CP-SAT: 4563, 5319 and 6993 at limits 4, 3 and 2."""
    line = frontier(Pipeline(4, 8, **GPT), limits=[2, 3, 4], seconds=60)  # type: ignore[arg-type]
    holds(line)
    assert values(line) == {2: 6993, 3: 5319, 4: 4563}
    assert all(point.result.reason == "optimal" for point in line.points)


@pytest.mark.slow
def test_the_tight_memory_table_at_eight_devices() -> None:
    line = frontier(Pipeline(8, 16, **GPT), limits=[4, 6, 8, 12], seconds=20)  # type: ignore[arg-type]
    holds(line)
    at_six = next(point for point in line.points if point.scale == 6).result
    assert at_six.lower_bound <= 10935 <= at_six.value  # type: ignore[operator]


def test_a_frontier_ends_where_more_memory_buys_nothing() -> None:
    line = frontier(Pipeline(3, 6), seconds=20)
    holds(line)
    unlimited = solve(Pipeline(3, 6), seconds=20)
    assert line.points[-1].result.value == unlimited.value
    assert all(point.result.value > unlimited.value for point in line.points[:-1])  # type: ignore[operator]
    assert line.points[0].scale == 1


def test_span() -> None:
    line = frontier(Pipeline(2, 4), objective="span", seconds=20)
    holds(line)
    assert values(line)[float(line.points[-1].scale)] == 12  # the work: no idle time within a device's span


def test_limits_per_device_are_scaled_together() -> None:
    pipeline = Pipeline(3, 5, memory=Memory(limit=(4, 2, 2)))
    line = frontier(pipeline, seconds=20)
    holds(line)
    assert line.points[0].scale == Fraction(1, 2)
    assert line.points[0].limit == [2, 1, 1]
    assert all(point.limit == [4 * point.scale, 2 * point.scale, 2 * point.scale] for point in line.points)


def test_real_units_and_static_memory() -> None:
    memory = Memory(activation=Fraction("1.25"), static=(10, 3))
    line = frontier(Pipeline(2, 3, memory=memory), seconds=20)
    holds(line)
    assert line.points[0].limit == 11.25
    assert least_scale(line.pipeline, line.shares) == Fraction(45, 4)


def test_a_route_that_nothing_takes_needs_no_memory() -> None:
    pipeline = Pipeline(2, 1, routes=((0, 1, 1), (1, 0, 0)), costs=Costs(per="stage"))  # the only microbatch is on the first
    assert least_scale(pipeline, (Fraction(1), Fraction(2))) == 1
    assert limited(pipeline, (Fraction(1), Fraction(2))).amounts.limit is not None


def test_limits_at_which_nothing_exists_are_left_out() -> None:
    line = frontier(Pipeline(2, 4), limits=[Fraction(1, 2), 1, 2], seconds=20)
    assert [point.scale for point in line.points] == [1, 2]


@thorough
def test_about_as_many_points_as_asked_for() -> None:
    line = frontier(Pipeline(4, 12, "wave", 2), points=4, seconds=0.5, deterministic=True)
    holds(line)
    assert 3 <= len(line.points) <= 5
    assert line.points[0].scale == 1
    full = frontier(Pipeline(4, 8), points=3, seconds=20)
    assert [point.scale for point in full.points][-1] == 4
    assert len(full.points) <= 4


def test_the_own_limit_is_a_point() -> None:
    line = frontier(Pipeline(3, 5, memory=Memory(limit=Fraction(5, 2))), seconds=20)
    holds(line)
    assert [point.scale for point in line.points] == [1, 2, Fraction(5, 2), 3]


def test_ctrl_c_ends_all_searches_and_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def interrupted(pipeline: Pipeline, *args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        result = solve_closed(pipeline, *args, **options)
        stopped = replace(result, reason="feasible", limit="interrupted", ticks=result.ticks._replace(lower_bound=0))
        return result if calls == 1 else stopped

    monkeypatch.setattr(frontier_module, "solve_closed", interrupted)
    line = frontier(Pipeline(4, 8), limits=[1, 2, 3, 4], seconds=10)
    assert calls == 2
    assert [point.scale for point in line.points] == [1, 2, 3, 4]
    assert any(point.result.limit == "interrupted" for point in line.points)
    for less, more in itertools.pairwise(line.points):
        assert more.result.value is not None
        assert less.result.value is None or less.result.value >= more.result.value


def test_points_that_neighbours_settle_are_not_solved() -> None:
    seconds = [point.result.seconds for point in frontier(Pipeline(2, 4), limits=[2, 3, 4, 5, 6], seconds=20).points]
    assert seconds.count(0.0) >= 3


@pytest.mark.parametrize("pipeline", [Pipeline(1, 1), Pipeline(1, 3), Pipeline(3, 1), Pipeline(2, 2, "wave", 2)], ids=str)
def test_small_pipelines(pipeline: Pipeline) -> None:
    holds(frontier(pipeline, seconds=10))


def test_nothing_takes_time() -> None:
    line = frontier(Pipeline(2, 2, costs=Costs(forward=0, backward_input=0, backward_weight=0)), seconds=5)
    holds(line)
    assert line.points[0].result.value == 0


def test_a_search_with_copies_begins_with_what_is_known_without() -> None:
    """Ticks differ: a copy takes a third."""
    pipeline = Pipeline(2, 6, memory=Memory(limit=2), offload=Offload(time=Fraction(1, 3)))
    with_copies, without = ways(pipeline)
    slow = frontier(without, limits=[2], seconds=20, workers=1)
    schedules = [point.result.schedule for point in slow.points if point.result.schedule is not None]
    quick = frontier(with_copies, limits=[2], seconds=0.001, workers=1, known=schedules)
    assert schedules[0].pipeline.ticks.per_unit != with_copies.ticks.per_unit
    assert quick.points[0].result.value is not None
    assert slow.points[0].result.value is not None
    assert quick.points[0].result.value <= slow.points[0].result.value


def test_a_schedule_is_rearranged_to_fit() -> None:
    free = find("1f1b").schedule(Pipeline(4, 8))
    for limit in (1, 2, 3):
        tight = limited(free.pipeline, (Fraction(limit),) * 4)
        found = rearranged(tight, free)
        assert found is not None
        assert not violations(tight, found)
        assert found.within_memory


def test_pairs_that_save_time_count_at_every_point() -> None:
    line = frontier(Pipeline(1, 3, costs=Costs(forward=2, backward=3, overlap=4)), limits=[1, 2], seconds=5)
    holds(line)
    assert any(point.result.schedule.order.paired for point in line.points)  # type: ignore[union-attr]


@drawn(
    2,
    8,
    st.integers(1, 3),
    st.integers(1, 4),
    st.tuples(*[st.integers(0, 3)] * 3),
    st.integers(0, 2),
    st.sampled_from([None, Fraction(0), Fraction(1, 2)]),
)
def test_random_frontiers(
    devices: int, microbatches: int, times: tuple[int, int, int], latency: int, retained: Fraction | None
) -> None:
    forward, backward, weight = times
    pipeline = Pipeline(
        devices,
        microbatches,
        costs=Costs(forward=forward, backward_input=backward, backward_weight=weight),
        links=Links(latency=latency),
        memory=Memory(retained=retained),
    )
    line = frontier(pipeline, seconds=5, points=6)
    holds(line)
    for point in line.points:
        if point.result.reason == "optimal":  # alone, without what the neighbours know
            alone = solve(point.result.pipeline, seconds=10)
            assert alone.reason != "optimal" or alone.value == point.result.value


def test_json() -> None:
    line = frontier(Pipeline(2, 4), limits=[1, 2], seconds=10)
    tree = json.loads(json.dumps(frontier_dict([line])))
    assert [point["limit"] for point in tree["points"]] == [1, 2]
    first = tree["points"][0]
    assert first["result"]["reason"] == "optimal"
    assert first["result"]["value"] == first["metrics"]["makespan"] == 20  # F F I I W of one microbatch after the other
    assert len(first["schedule"]["order"]) == 2
    assert {row["schedule"] for row in tree["named"]} >= {"1f1b", "gpipe", "zb-h1"}


def test_a_named_schedule_whose_microbatches_take_other_routes_is_no_start() -> None:
    """On the same routes, but with another microbatch on the first one, the same order is none."""
    sharded = find("fslpp").place(Pipeline(4, 4))
    assert sharded.route_of_microbatch == (0, 1, 0, 1)
    own = sharded.changed(route_of_microbatch=(0, 0, 1, 1))
    assert own.places != sharded.places
    assert own.places == own.changed(memory=Memory(limit=8), route_of_microbatch=own.route_of_microbatch).places
    holds(frontier(own, points=2, seconds=5, deterministic=True))
