"""The least device span of an order: against a model that has all starts as variables."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from ppopt import cpsat
from ppopt.checker import violations
from ppopt.constraints import cuts_of
from ppopt.heuristics import baselines
from ppopt.op import Op
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.search import solve
from ppopt.timing import left_shifted, time_order
from ppopt.timing.paths import Paths, largest_mean, shortest_spans
from tests.support.strategies import orders, pipelines
from tests.support.unaided import solved


def least_span(schedule: Schedule) -> int:
    """With the starts as variables, as CP-SAT sees it."""
    paths, model = Paths(schedule), cp_model.CpModel()
    most = 2 * schedule.pipeline.devices * (schedule.makespan + 1)
    start = [model.new_int_var(0, most, "") for _ in paths.duration]
    span = model.new_int_var(0, most, "")
    for before, following in enumerate(paths.after):
        for after, lag in following:
            model.add(start[after] >= start[before] + (paths.duration[before] + lag))
    pipeline, ticks, op = schedule.pipeline, schedule.pipeline.ticks, schedule.order.index.op
    before, after = (np.maximum(table, 0).tolist() for table in (ticks.lead, ticks.tail))
    for row in filter(None, paths.devices):
        begin, end = model.new_int_var(0, most, ""), model.new_int_var(0, 2 * most, "")
        for node in row:
            halves = op(paths.network.number[node])
            for half in (halves,) if isinstance(halves, Op) else halves:
                route = int(pipeline.route_by_microbatch[half.microbatch])
                model.add(start[node] >= begin + before[route][half.kind][half.stage])
                model.add(end >= start[node] + paths.duration[node] + after[route][half.kind][half.stage])
        model.add(span >= end - begin)
    model.minimize(span)
    solver = cp_model.CpSolver()
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


def test_random_orders() -> None:
    """Everything first as early as it can be; and orders of schedules with a least span."""
    shorter = 0

    @settings(max_examples=60)
    @given(pipelines(30).filter(lambda each: each.devices > 1).flatmap(lambda each: st.tuples(st.just(each), orders(each))))
    def on(case: tuple[Pipeline, Order]) -> None:
        nonlocal shorter
        pipeline, order = case
        free = pipeline.changed(memory=Memory(), route_of_microbatch=pipeline.route_of_microbatch)  # any order fits
        early = time_order(free, order)
        found = shortest_spans(early)
        assert found.order == order
        assert violations(free, found) == []
        assert found.device_span == least_span(early) <= early.device_span
        shorter += found.device_span < early.device_span

    @settings(max_examples=15)
    @given(pipelines(24))
    def of_least_span(pipeline: Pipeline) -> None:
        best = solved(cpsat, pipeline, "span", cuts_of(pipeline), seconds=20).schedule
        if best is not None:
            found = shortest_spans(left_shifted(best))
            assert violations(pipeline, found) == []
            assert found.device_span <= best.device_span

    on()
    of_least_span()
    assert shorter >= 5


@pytest.mark.parametrize("overlap", [False, True])
def test_what_devices_do_before_and_after_counts(overlap: bool) -> None:
    traffic = DataParallel((3, 1, 5), (2, 4, 1), overlap=overlap)
    for costs in (Costs(), Costs(optimizer=(0, 7, 1)), Costs(forward=(1, 2, 1))):
        pipeline = Pipeline(3, 4, placement="wave", chunks=2, costs=costs, links=Links(1), data_parallel=traffic)
        for _, schedule in baselines(pipeline)[:4]:
            found = shortest_spans(schedule)
            assert violations(pipeline, found) == []
            assert found.device_span == least_span(schedule) <= schedule.device_span


@pytest.mark.parametrize("blocking", [False, True])
def test_links(blocking: bool) -> None:
    pipeline = Pipeline(3, 3, placement="wave", chunks=2, links=Links(1, occupancy=2, blocking=blocking))
    for _, schedule in baselines(pipeline)[:4]:
        found = shortest_spans(schedule)
        assert violations(pipeline, found) == []
        assert found.device_span == least_span(schedule)


def test_a_cycle_over_several_devices_counts() -> None:
    # From 0 to 1 it takes 10, back 5: the two spans are 7.5 on average whatever the beginnings are, in whole ticks 8.
    assert largest_mean(np.array([[6, 10], [5, 7]])) == 8
    assert largest_mean(np.array([[9, 10], [5, 7]])) == 9
    assert largest_mean(np.array([[3, 1, 0], [0, 2, 9], [9, 0, 1]])) == 7  # 0 -> 1 -> 2 -> 0: 19 / 3


def test_the_span_of_a_named_order_is_proved_by_its_order_alone() -> None:
    result = solve(Pipeline(4, 8, links=Links(2)), order="zb-h2", objective="span", seconds=10)
    assert result.reason == "optimal"
    assert result.proved_by == "the binding order, which leaves nothing open"
    assert not any(step.name.startswith("CP-SAT") for step in result.steps)
    assert result.schedule is not None
    assert result.value == least_span(result.schedule)
