"""Times of orders."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppopt.constraints import Family, Precede, chain
from ppopt.heuristics import order_of
from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, Links, Pipeline
from ppopt.schedule import Order
from ppopt.timing import CyclicOrder, OrderError, time_order
from tests.support.strategies import orders, pipelines


def relaxed_times(pipeline: Pipeline, order: Order) -> list[list[int]]:
    """The same times by another method: all conditions of the rules, relaxed until nothing moves."""
    duration = pipeline.ticks.duration
    start = {op: 0 for row in range(pipeline.devices) for op in order.ops(row)}
    before: list[tuple[Op, Op, int]] = []
    for row in range(pipeline.devices):
        ops = order.ops(row)
        before += [(a, b, 0) for a, b in pairwise(ops)]
    for op in start:
        assert isinstance(op, Op)
        s, m, route = op.stage, op.microbatch, pipeline.routes[pipeline.route_of_microbatch[op.microbatch]]
        needs = {
            Kind.F: [(s - 1, Kind.F)] if s else [],
            Kind.W: [(s, Kind.I)],
        }.get(op.kind, [(s, Kind.F), (s + 1, Kind.B), (s + 1, Kind.I)])
        for stage, kind in needs:
            if Op(stage, kind, m) in start:
                before.append((Op(stage, kind, m), op, int(pipeline.ticks.latency[route[stage], route[s]])))
    moved = True
    while moved:
        moved = False
        for a, b, lag in before:
            route = pipeline.route_of_microbatch[a.microbatch]
            earliest = start[a] + int(duration[route, a.kind, a.stage]) + lag
            if start[b] < earliest:
                start[b], moved = earliest, True
    return [[start[op] for op in order.ops(row)] for row in range(pipeline.devices)]


@settings(max_examples=60)
@given(pipelines(40).flatmap(lambda pipeline: st.tuples(st.just(pipeline), orders(pipeline))))
def test_times_equal_those_of_another_method(case: tuple[Pipeline, Order]) -> None:
    pipeline, order = case
    assert [row.tolist() for row in time_order(pipeline, order).start] == relaxed_times(pipeline, order)


def test_a_cycle_is_shown() -> None:
    pipeline = Pipeline(2, 2)
    rows = [["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]]
    with pytest.raises(CyclicOrder) as error:
        time_order(pipeline, Order.of(pipeline, rows))
    cycle = error.value.cycle
    assert {"0B0", "0F1", "1F1"} <= set(cycle)
    assert str(error.value).endswith(f"waits for {cycle[0]}")
    for op, needed in zip(cycle, [*cycle[1:], cycle[0]], strict=True):  # each waits for the next one
        neighbours = [(row[i], row[i - 1]) for row in rows for i in range(1, len(row))]
        m = op[2]
        data = {(f"1F{m}", f"0F{m}"), (f"0B{m}", f"1B{m}"), (f"1B{m}", f"1F{m}")}
        assert (op, needed) in neighbours or (op, needed) in data


def test_a_backward_before_its_forward_is_a_cycle() -> None:
    pipeline = Pipeline(1, 1)
    with pytest.raises(CyclicOrder, match=r"0F0 waits for 0B0|0B0 waits for 0F0"):
        time_order(pipeline, Order.of(pipeline, [["0B0", "0F0"]]))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["0F0", "0B0"], ["1F0"]], "1B0 is missing"),
        ([["0F0", "0B0"], ["1F0", "1I0"]], "1W0 is missing"),
        ([["0F0", "0B0"], ["1F0", "1W0"]], "1I0 is missing"),
        ([["0B0"], ["1F0", "1B0"]], "0F0 is missing"),
        ([["0F0", "0F0", "0B0"], ["1F0", "1B0"]], "0F0 is run twice"),
        ([["0F0", "0B0", "0I0", "0W0"], ["1F0", "1B0"]], "0B0 is also run as 0I0 and 0W0"),
        ([["0F0", "0B0", "1B0"], ["1F0"]], "1B0 is on device 0; its stage is on device 1"),
        ([["0F0", "0B0"]], "the order is for"),
    ],
)
def test_orders_that_cannot_be_timed(rows: list[list[str]], message: str) -> None:
    pipeline = Pipeline(2, 1)
    with pytest.raises(OrderError, match=message):
        time_order(pipeline, Order.of(pipeline, rows))


def test_a_fused_pipeline_has_no_split_backward() -> None:
    pipeline = Pipeline(1, 1, costs=Costs(backward=2))
    with pytest.raises(OrderError, match="fused backward only"):
        time_order(pipeline, Order.of(pipeline, [["0F0", "0I0", "0W0"]]))


def test_constraints_pin_an_order_or_leave_it_open() -> None:
    pipeline = Pipeline(1, 3)
    forward, backward = Family(0, Kind.F), Family(0, Kind.B)
    chains = [chain(forward), chain(backward)]
    alternating = [*chains, Precede(forward, backward), Precede(backward, forward, shift=1)]
    pinned = order_of(pipeline, alternating)
    assert pinned is not None
    assert pinned.texts() == [["0F0", "0B0", "0F1", "0B1", "0F2", "0B2"]]
    assert order_of(pipeline, alternating[:-1]) is None
    assert order_of(pipeline, chains) is None
    with pytest.raises(CyclicOrder):
        order_of(pipeline, [*chains, Precede(forward, backward, shift=-1), Precede(backward, forward)])


def test_zero_durations_and_zero_time() -> None:
    pipeline = Pipeline(2, 2, costs=Costs(forward=0, backward=0))
    rows = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    schedule = time_order(pipeline, Order.of(pipeline, rows))
    assert schedule.makespan == 0
    assert schedule.bubble_ratio == schedule.span_bubble_ratio == schedule.overhead == 0
    assert schedule.peak_memory == (2, 1)


def test_scaling_the_costs_scales_the_times() -> None:
    rows = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    once = Pipeline(2, 2, costs=Costs(forward=3, backward=5), links=Links(1))
    thrice = Pipeline(2, 2, costs=Costs(forward=9, backward=15), links=Links(3))
    first, second = (time_order(p, Order.of(p, rows)) for p in (once, thrice))
    assert [(3 * row).tolist() for row in first.start] == [row.tolist() for row in second.start]
    assert np.isclose(first.bubble_ratio, second.bubble_ratio)
