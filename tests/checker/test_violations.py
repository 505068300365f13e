"""What a violation says, and what is none."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ppopt.checker import Record, Rule, Violation, metrics, metrics_of, violations, violations_of
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order
from tests.support.checked import TWO, VALID, only, records


def test_a_violation_says_what_where_and_when() -> None:
    assert violations_of(TWO, VALID) == []
    early: list[list[Record]] = [VALID[0], [("1F0", 1.5, 2.5), *VALID[1][1:]]]
    message = "1F0 starts at 1.5 on device 1, but the result of 0F0, which ends at 1, arrives at 2"
    assert only(violations_of(TWO, early)) == Violation(Rule.LATENCY, 1, "1F0", 1.5, message)
    limited = replace(TWO, microbatches=3, route_of_microbatch=(), links=Links(), memory=Memory(limit=[1.5, 2]))
    order = Order.of(limited, [["0F0", "0F1", "0F2", "0B0", "0B1", "0B2"], ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2"]])
    excess = only(violations(limited, time_order(limited, order)))
    assert (excess.rule, excess.device, excess.op, excess.time) == (Rule.MEMORY, 0, "0F1", 1)
    assert "limit of 1.5" in excess.message
    assert "up to 3, 1.5 too much, at 2" in excess.message
    assert json.loads(json.dumps({"rule": excess.rule})) == {"rule": "memory"}


def test_separate_excesses_are_reported_separately() -> None:
    pipeline = Pipeline(1, 4, memory=Memory(limit=1))
    order = Order.of(pipeline, [["0F0", "0F1", "0B0", "0B1", "0F2", "0F3", "0B2", "0B3"]])
    found = violations(pipeline, time_order(pipeline, order))
    assert [(v.rule, v.op, v.time) for v in found] == [(Rule.MEMORY, "0F1", 1), (Rule.MEMORY, "0F3", 7)]


def test_tolerance_is_a_millionth_of_the_shortest_operation() -> None:
    pipeline = Pipeline(1, 1, costs=Costs(forward=10, backward=0.5))
    for error, accepted in ((4e-7, True), (-4e-7, True), (6e-7, False), (-6e-7, False)):
        rows: list[list[Record]] = [[("0F0", 0, 10 + error), ("0B0", 10, 10.5)]]
        assert (violations_of(pipeline, rows) == []) is accepted
        exact: list[list[Record]] = [[("0F0", 0, Fraction(10)), ("0B0", Fraction(10) + Fraction(error), Fraction(21, 2))]]
        assert (violations_of(pipeline, exact) == []) is accepted


def test_doubles_of_long_schedules_are_accepted() -> None:
    pipeline = Pipeline(2, 3, costs=Costs(forward=1e-6, backward=Fraction(10**9, 3)), links=Links(0.1))
    order = Order.of(pipeline, [[f"{d}{k}{m}" for m in range(3) for k in "FB"] for d in range(2)])
    assert violations_of(pipeline, records(time_order(pipeline, order)), earliest=True) == []


def test_idle_time_is_late_only_where_that_is_asked() -> None:
    rows: list[list[Record]] = [VALID[0], [VALID[1][0], ("1B0", 3, 5)]]
    rows[0] = [("0F0", 0, 1), ("0B0", 7, 9)]
    assert violations_of(TWO, rows) == []
    late = only(violations_of(TWO, rows, earliest=True))
    assert (late.rule, late.op, late.time) == (Rule.LATE, "0B0", 7)
    assert late.message.endswith("nothing holds it back after 6")
    shifted: list[list[Record]] = [[(op, start + 1, end + 1) for op, start, end in row] for row in VALID]
    assert [v.op for v in violations_of(TWO, shifted, earliest=True)] == ["0F0"]


def test_extra_and_missing_rows() -> None:
    found = violations_of(TWO, [*VALID, [("0F0", 9, 10)]])
    assert {v.rule for v in found} == {Rule.TWICE, Rule.DEVICE}
    assert {(v.rule, v.device, v.op, v.time) for v in violations_of(TWO, VALID[:1])} == {
        (Rule.MISSING, 1, "1F0", None),
        (Rule.MISSING, 1, "1B0", None),
    }
    assert {v.rule for v in violations_of(TWO, [])} == {Rule.MISSING}
    assert metrics_of(TWO, []).makespan == 0


def test_operations_without_duration_at_one_time_follow_the_list() -> None:
    pipeline = Pipeline(1, 1, costs=Costs(forward=1, backward_input=0, backward_weight=0))
    assert violations_of(pipeline, [[("0F0", 0, 1), ("0I0", 1, 1), ("0W0", 1, 1)]]) == []
    circle = only(violations_of(pipeline, [[("0F0", 0, 1), ("0W0", 1, 1), ("0I0", 1, 1)]]))
    assert (circle.rule, circle.time) == (Rule.DATA, 1)
    assert "waits for" in circle.message
    paired = Pipeline(1, 1, costs=Costs(forward=0, backward=0))
    assert only(violations_of(paired, [[("(0F0;0B0)OVERLAP_F_B", 0, 0)]])).rule == Rule.DATA
    over = replace(pipeline, microbatches=2, route_of_microbatch=(), costs=Costs(forward=0, backward=0), memory=Memory(limit=1))
    row: list[Record] = [("0F0", 0, 0), ("0B0", 0, 0), ("0F1", 0, 0), ("0B1", 0, 0)]
    assert violations_of(over, [row]) == []
    assert {v.rule for v in violations_of(over, [[row[0], row[2], row[1], row[3]]])} == {Rule.MEMORY}


def test_two_copies_of_the_weights_count_twice() -> None:
    pipeline = Pipeline(2, 2, placement="bidirectional", memory=Memory(static=[3, 4], limit=[7, 9]))
    rows = [["0F0", "1F1", "1B1", "0B0"], ["0F1", "1F0", "1B0", "0B1"]]
    schedule = time_order(pipeline, Order.of(pipeline, rows))
    assert metrics(pipeline, schedule).peak_memory == (8, 10)
    assert {(v.rule, v.device) for v in violations(pipeline, schedule)} == {(Rule.MEMORY, 0), (Rule.MEMORY, 1)}


def test_a_schedule_is_judged_by_the_pipeline_that_is_named() -> None:
    half = Pipeline(2, 1, costs=Costs(forward=0.5, backward=1))
    order = Order.of(half, [["0F0", "0B0"], ["1F0", "1B0"]])
    schedule = time_order(half, order)
    assert violations(half, schedule) == []
    assert violations(replace(half, links=Links(Fraction(1, 3))), schedule)[0].rule == Rule.LATENCY
    assert {v.rule for v in violations(replace(half, costs=Costs(forward=0.6, backward=1)), schedule)} == {
        Rule.DATA,
        Rule.OVERLAP,
    }
    assert violations(replace(half, costs=Costs(forward=0.25, backward=1)), schedule) == []
    more = violations(half.changed(microbatches=2), schedule)
    assert {v.rule for v in more} == {Rule.MISSING}
    fewer = half.changed(microbatches=1, routes=((0, 0),), devices=1)
    assert Rule.DEVICE in {v.rule for v in violations(fewer, schedule)}


def test_a_schedule_with_other_starts_than_operations_is_refused() -> None:
    order = Order.of(TWO, [["0F0", "0B0"], ["1F0", "1B0"]])
    starts = (np.array([0]), np.array([2, 3]))
    with pytest.raises(ValueError, match="device 0 has 2 operations and 1 starts"):
        violations(TWO, Schedule(TWO, order, starts))
