"""A run as a schedule: its own times, and why its devices were idle."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import strategies as st

from ppopt.op import Kind
from ppopt.runs import gaps_of, idle_of, schedule_of
from ppopt.timing import Waited, time_order
from tests.support.runs import FUSED, SPLIT, planned, run_of
from tests.support.tiers import drawn, thorough

NAMES = ("1f1b", "zb-h1", "dualpipe-v", "gpipe", "zb-v", "interleaved-1f1b", "interleaved-zb")


@pytest.mark.parametrize("name", [*NAMES[:3], *(pytest.param(name, marks=thorough) for name in NAMES[3:])])
def test_a_run_that_went_as_planned_is_the_schedule(name: str) -> None:
    schedule = planned(name, costs=SPLIT)
    run = schedule_of(run_of(schedule))
    assert run.pipeline.routes == schedule.pipeline.routes
    assert run.pipeline.time(run.makespan) == schedule.pipeline.time(schedule.makespan)
    assert list(map(run.pipeline.time, run.work)) == list(map(schedule.pipeline.time, schedule.work))
    assert run.bubble_ratio == pytest.approx(schedule.bubble_ratio)
    assert run.order == schedule.order


@pytest.mark.parametrize(("unit", "per_unit"), [("ms", 10_000), ("s", 10_000_000), ("us", 10), ("0.1 ms", 1000), ("ns", 1)])
def test_times_are_kept_to_a_tenth_of_a_microsecond_in_any_unit(unit: str, per_unit: int) -> None:
    run = schedule_of(run_of(planned("1f1b", 2, 2), lambda op: 0.123), unit)
    assert run.pipeline.ticks.per_unit == per_unit
    milliseconds = {"ms": 1, "s": 1000, "us": 1e-3, "0.1 ms": 0.1, "ns": 1e-6}[unit]
    assert float(run.pipeline.time(run.makespan)) * milliseconds == pytest.approx(36.738 + 0.4, abs=2e-4)


def test_operations_of_a_stage_have_times_of_their_own_and_costs_are_their_medians() -> None:
    run = schedule_of(run_of(planned("1f1b", 2, 4), lambda op: {"0F1": 2.0, "0F2": 3.0}.get(op, 0.0)))
    assert (run.took[0][run.order.rows[0] < 4] / 10_000).tolist() == [4, 6, 7, 4]
    assert run.pipeline.costs.forward == (5, 4)
    timed = time_order(run.pipeline, run.order)  # the pipeline is one like any other
    assert timed.pipeline.ticks.duration[0, Kind.F].tolist() == [50_000, 40_000]


@st.composite
def delays(draw: st.DrawFn) -> tuple[str, dict[str, float]]:
    name = draw(st.sampled_from(NAMES))
    ops = [text for row in planned(name, costs=SPLIT).order.texts() for text in row]
    late = draw(st.dictionaries(st.sampled_from(ops), st.floats(0.01, 20.0), max_size=6))
    return name, late


@drawn(2, 60, delays())
def test_work_and_the_causes_of_idle_time_make_up_the_makespan(case: tuple[str, dict[str, float]]) -> None:
    name, late = case
    run = schedule_of(run_of(planned(name, costs=SPLIT), lambda op: late.get(op, 0.0)))
    for work, idle, gaps in zip(run.work, idle_of(run), gaps_of(run), strict=True):
        assert work + sum(idle.values()) == run.makespan
        assert all(gap.since < gap.until for gap in gaps)
        edges = np.array([edge for gap in gaps for edge in (gap.since, gap.until)])
        assert (np.diff(edges) >= 0).all()


@pytest.mark.parametrize("name", ["1f1b", pytest.param("zb-v", marks=thorough)])
def test_the_critical_path_of_a_run_goes_back_to_its_begin(name: str) -> None:
    """No operation begins just when what it waited for ends; it waited for what was the last to end."""
    plan = planned(name, costs=SPLIT)
    run = schedule_of(run_of(plan, lambda op: 0.1 + 0.01 * (len(op) + int(op[0]))))
    later = replace(run, start=tuple(start + 10 * np.arange(len(start)) for start in run.start))  # gaps of a microsecond each
    path = Waited(later).path
    assert (path[0].start, path[-1].end) == (0, later.begin + later.makespan)
    assert len(path) > 2 * plan.pipeline.microbatches
    assert all(a.end <= b.start for a, b in pairwise(path))


def test_why_devices_are_idle() -> None:
    """Two devices, two microbatches, 1F1B, 4 and 8 ms, 0.2 ms for a message, worked out by hand.

    Device 0: 0F0 0-4, 0F1 4-8, 0B0 16.4-24.4, 0B1 28.4-36.4. Device 1: 1F0 4.2-8.2, 1B0 8.2-16.2, 1F1 16.2-20.2, 1B1 20.2-28.2.
    """
    run = schedule_of(run_of(planned("1f1b", 2, 2, FUSED)))
    assert run.start[0].tolist() == [0, 40_000, 164_000, 284_000]
    tenths = [{cause: ticks / 10_000 for cause, ticks in idle.items() if ticks} for idle in idle_of(run)]
    # device 0 waits for 1B0, which ends at 16.2, then for its transfer; between 24.4 and 28.2 for 1B1
    assert tenths[0] == {"data": pytest.approx(8.2 + 3.8), "link": pytest.approx(0.4)}
    assert tenths[1] == {"start": 4.2, "end": pytest.approx(8.2)}
