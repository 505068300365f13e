"""The checker against a third reading of the rules, on random schedules with and without mistakes."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st

from ppopt.checker import Record, metrics, violations, violations_of
from ppopt.checker.facts import facts_of
from ppopt.op import Kind
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order
from tests.support.oracle import Ops, Row, World, peaks, schedules, text, timed, worlds, wrong
from tests.support.tiers import drawn


def written(rows: list[Row], unit: Fraction, as_floats: bool) -> list[list[Record]]:
    def number(time: int) -> Fraction | float:
        return float(time * unit) if as_floats else time * unit

    return [[(text(ops), number(start), number(end)) for ops, start, end in row] for row in rows]


UNITS = st.sampled_from([(Fraction(1), False), (Fraction(1, 3), False), (Fraction(1, 3), True), (Fraction(1, 10), True)])


@drawn(40, 100, schedules(), UNITS)
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


@drawn(60, 100, perturbed(), UNITS)
def test_what_is_wrong_is_found_and_nothing_else(case: tuple[World, list[Row]], unit: tuple[Fraction, bool]) -> None:
    world, rows = case
    found = violations_of(world.pipeline(unit[0]), written(rows, *unit))
    assert bool(found) == bool(wrong(world, rows)), (wrong(world, rows), found)


@drawn(40, 100, perturbed())
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


@drawn(40, 100, worlds())
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
