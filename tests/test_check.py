"""The checker accepts what is valid, derives its figures, and agrees with a dumb oracle on what is not."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import golden
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Ops, Row, World, peaks, schedules, text, timed, worlds, wrong

from ppopt.checker import Record, Rule, Violation, metrics, metrics_of, mismatches, violations, violations_of
from ppopt.checker.facts import facts_of
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order


def records(schedule: Schedule) -> list[list[Record]]:
    """A schedule as a result file has it: doubles where times are not whole."""
    time = schedule.pipeline.time
    return [
        [(op, time(start), time(end)) for op, start, end in zip(ops, starts, ends, strict=True)]
        for ops, starts, ends in zip(schedule.order.texts(), schedule.start, schedule.end, strict=True)
    ]


# --- golden schedules --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("entry", "timing"), [pytest.param(e, t, id=name) for e, t, name in golden.cases()])
def test_golden_schedules_are_accepted(entry: dict[str, Any], timing: dict[str, Any]) -> None:
    pipeline = golden.pipeline_of(entry, timing)
    pipeline = replace(pipeline, memory=Memory(limit=timing["peak_in_flight"]))
    schedule = time_order(pipeline, golden.order_of(entry, pipeline))
    assert violations(pipeline, schedule, earliest=True) == []
    assert violations_of(pipeline, records(schedule), earliest=True) == []
    derived = metrics(pipeline, schedule)
    assert derived == metrics_of(pipeline, records(schedule))
    assert derived.makespan == timing["makespan"]
    assert derived.device_span == timing["max_device_span"]
    assert list(derived.peak_memory) == timing["peak_in_flight"]


# --- random schedules --------------------------------------------------------------------------------------------


def written(rows: list[Row], unit: Fraction, as_floats: bool) -> list[list[Record]]:
    def number(time: int) -> Fraction | float:
        return float(time * unit) if as_floats else time * unit

    return [[(text(ops), number(start), number(end)) for ops, start, end in row] for row in rows]


UNITS = st.sampled_from([(Fraction(1), False), (Fraction(1, 3), False), (Fraction(1, 3), True), (Fraction(1, 10), True)])


@settings(deadline=None)
@given(schedules(), UNITS)
def test_valid_schedules_are_accepted(case: tuple[World, list[Row]], unit: tuple[Fraction, bool]) -> None:
    world, rows = case
    assert wrong(world, rows) == ""
    pipeline = world.pipeline(unit[0])
    recorded = written(rows, *unit)
    assert violations_of(pipeline, recorded, earliest=True) == []
    order = Order.of(pipeline, [[record[0] for record in row] for row in recorded])
    schedule = time_order(pipeline, order)
    assert violations(pipeline, schedule, earliest=True) == []

    derived = metrics(pipeline, schedule)
    makespan = max(end for row in rows for _, _, end in row) - min(start for row in rows for _, start, _ in row)
    work = [sum(world.duration(ops) for ops, _, _ in row) for row in rows]
    assert derived.makespan == makespan * unit[0]
    assert derived.device_span == max(row[-1][2] - row[0][1] if row else 0 for row in rows) * unit[0]
    assert list(derived.work) == [w * unit[0] for w in work]
    assert list(derived.peak_memory) == [peak * unit[0] for peak in peaks(world, rows)]
    assert derived.bubble_ratio == (1 - Fraction(sum(work), world.devices * makespan) if makespan else 0)
    assert math.isclose(schedule.bubble_ratio, derived.bubble_ratio, abs_tol=1e-12)
    assert math.isclose(schedule.span_bubble_ratio, derived.span_bubble_ratio, abs_tol=1e-12)
    assert math.isclose(schedule.overhead, derived.overhead, rel_tol=1e-12, abs_tol=1e-12)
    assert [pipeline.amount(peak) for peak in schedule.peak_memory] == [pytest.approx(float(p)) for p in derived.peak_memory]


CHANGES = ["shift", "shift-rest", "start", "end", "list", "times", "retime", "move", "drop", "again", "other-microbatch", "tear"]


@st.composite
def perturbed(draw: st.DrawFn) -> tuple[World, list[Row]]:
    """A valid schedule with something changed, which may or may not break a rule."""
    world, rows = draw(schedules())
    rows = [list(row) for row in rows]
    for _ in range(draw(st.integers(1, 2))):
        device = draw(st.sampled_from([d for d, row in enumerate(rows) if row] or [-1]))
        if device < 0:
            break
        row = rows[device]
        at = draw(st.integers(0, len(row) - 1))
        ops, start, end = row[at]
        by = draw(st.integers(-3, 3))
        change = draw(st.sampled_from(CHANGES))
        if change == "shift":
            row[at] = ops, start + by, end + by
        elif change == "shift-rest":
            row[at:] = [(o, s + by, e + by) for o, s, e in row[at:]]
        elif change == "start":
            row[at] = ops, start + by, end
        elif change == "end":
            row[at] = ops, start, end + by
        elif change in ("list", "times", "retime"):
            other = min(at + 1, len(row) - 1)
            row[at], row[other] = row[other], row[at]
            if change == "times":
                row[at], row[other] = (row[at][0], *row[other][1:]), (row[other][0], *row[at][1:])
            elif change == "retime" and all(half[2] < world.microbatches for r in rows for entry in r for half in entry[0]):
                rows = timed(world, [[entry[0] for entry in row] for row in rows]) or rows
        elif change == "move":
            rows[draw(st.integers(0, world.devices - 1))].append(row.pop(at))
        elif change == "drop":
            del row[at]
        elif change == "again":
            last = max(end for _, _, end in row)
            row.append((ops, last, last + end - start))
        elif change == "other-microbatch":
            m = draw(st.integers(0, world.microbatches))
            row[at] = tuple((stage, kind, m) for stage, kind, _ in ops), start, end
        elif change == "tear":
            halves: list[tuple[Ops, int, int]] = []
            for half in ops:
                halves.append(((half,), start, start + world.duration((half,))))
                start = halves[-1][2]
            row[at : at + 1] = halves
    return world, rows


@settings(deadline=None)
@given(perturbed(), UNITS)
def test_what_is_wrong_is_found_and_nothing_else(case: tuple[World, list[Row]], unit: tuple[Fraction, bool]) -> None:
    world, rows = case
    found = violations_of(world.pipeline(unit[0]), written(rows, *unit))
    assert bool(found) == bool(wrong(world, rows)), (wrong(world, rows), found)


@settings(deadline=None)
@given(perturbed())
def test_schedules_and_their_records_are_judged_alike(case: tuple[World, list[Row]]) -> None:
    world, rows = case
    pipeline = world.pipeline()
    try:
        order = Order.of(pipeline, [[text(ops) for ops, _, _ in row] for row in rows])
    except ValueError:
        return  # an operation that a schedule cannot hold
    starts = tuple(np.array([start for _, start, _ in row], dtype=np.int64) for row in rows)
    schedule = Schedule(pipeline, order, starts)
    rows = [[(ops, start, start + max(world.duration(ops), 0)) for ops, start, _ in row] for row in rows]
    assert bool(violations(pipeline, schedule)) == bool(wrong(world, rows))


@settings(deadline=None)
@given(worlds())
def test_both_readings_of_a_pipeline_agree(world: World) -> None:
    pipeline = replace(world.pipeline(Fraction(1, 7)), costs=replace(world.pipeline().costs, per="stage"))
    if world.stages == world.devices:
        pipeline = replace(pipeline, costs=replace(pipeline.costs, per="device"))
    ticks, amounts = pipeline.ticks, pipeline.amounts
    facts = facts_of(pipeline, ticks.per_unit)
    factor = facts.per_time // ticks.per_unit
    for route in range(len(pipeline.routes)):
        durations = [facts.duration[route][kind * world.stages : (kind + 1) * world.stages] for kind in Kind]
        assert durations == [[t * factor if t >= 0 else -1 for t in row] for row in ticks.duration[route].tolist()]
        assert facts.overlap[route] == [t * factor if t >= 0 else -1 for t in ticks.overlap[route].tolist()]
    assert facts.static == [Fraction(int(a), amounts.per_unit) * facts.per_amount for a in amounts.static]
    for mine, other in ((facts.activation, amounts.activation), (facts.retained, amounts.retained)):
        assert mine == [[Fraction(a, amounts.per_unit) * facts.per_amount for a in row] for row in other.tolist()]


# --- single rules, in messages -----------------------------------------------------------------------------------

TWO = Pipeline(2, 1, costs=Costs(forward=1, backward=2), links=Links(1))
VALID: list[list[Record]] = [[("0F0", 0, 1), ("0B0", 6, 8)], [("1F0", 2, 3), ("1B0", 3, 5)]]


def only(found: list[Violation]) -> Violation:
    assert len(found) == 1, found
    return found[0]


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


# --- recorded figures --------------------------------------------------------------------------------------------

FIGURES: dict[str, Any] = {
    "makespan": 8,
    "device_span": 8,
    "bubble_ratio": 1 - 6 / 16,
    "span_bubble_ratio": 1 - 3 / 8,
    "overhead": 5 / 3,
    "work": [3, 3],
    "peak_memory": [1, 1],
}
OUTCOME: dict[str, Any] = {"objective": "makespan", "value": 8, "lower_bound": 8, "gap": 0.0, "reason": "optimal"}


def test_right_figures_are_accepted() -> None:
    assert mismatches(TWO, VALID, metrics=FIGURES, outcome=OUTCOME) == []
    assert mismatches(TWO, VALID) == []
    open_ = {**OUTCOME, "lower_bound": 6, "gap": 0.25, "reason": "feasible"}
    assert mismatches(TWO, VALID, outcome=open_) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("makespan", 7.999),
        ("makespan", float("nan")),
        ("makespan", None),
        ("device_span", 9),
        ("bubble_ratio", 0.37),
        ("span_bubble_ratio", 0.0),
        ("overhead", 1.6),
        ("work", [3, 4]),
        ("work", [3]),
        ("peak_memory", [1, 1.5]),
        ("peak_memory", [0, 1]),
    ],
)
def test_wrong_figures_are_found(key: str, value: Any) -> None:
    found = only(mismatches(TWO, VALID, metrics={**FIGURES, key: value}))
    assert found.rule == Rule.METRIC
    assert f"metrics.{key}" in found.message


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"value": 9, "gap": 1 / 9, "reason": "feasible"}, Rule.METRIC),
        ({"objective": "span", "value": 7, "lower_bound": 7}, Rule.METRIC),
        ({"lower_bound": 8.5, "gap": -0.0625}, Rule.BOUND),
        ({"lower_bound": 7, "gap": 0.125}, Rule.BOUND),
        ({"gap": 0.1}, Rule.METRIC),
        ({"reason": "infeasible"}, Rule.METRIC),
        ({"value": None}, Rule.METRIC),
    ],
)
def test_wrong_outcomes_are_found(change: dict[str, Any], rule: Rule) -> None:
    assert only(mismatches(TWO, VALID, outcome={**OUTCOME, **change})).rule == rule
