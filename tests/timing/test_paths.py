"""The least device span of an order: against a model that has all starts as variables."""

import numpy as np
import pytest
from hypothesis import given, settings
from ortools.sat.python import cp_model

from ppopt import cpsat
from ppopt.checker import violations
from ppopt.constraints import cuts_of
from ppopt.heuristics import baselines
from ppopt.pipeline import Links, Pipeline
from ppopt.schedule import Schedule
from ppopt.search import solve
from ppopt.timing import left_shifted
from ppopt.timing.paths import Paths, largest_mean, shortest_spans
from tests.support.strategies import pipelines
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
    for row in filter(None, paths.devices):
        model.add(span >= start[row[-1]] + paths.duration[row[-1]] - start[row[0]])
    model.minimize(span)
    solver = cp_model.CpSolver()
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


def test_random_orders() -> None:
    """Orders of schedules with a least span, everything first as early as it can be."""
    shorter = 0

    @settings(max_examples=40)
    @given(pipelines(24).filter(lambda pipeline: pipeline.devices > 1))
    def on(pipeline: Pipeline) -> None:
        nonlocal shorter
        best = solved(cpsat, pipeline, "span", cuts_of(pipeline), seconds=20).schedule
        if best is None:
            return
        for early in (left_shifted(best), *(schedule for _, schedule in baselines(pipeline)[:3])):
            found = shortest_spans(early)
            assert found.order == early.order
            assert violations(pipeline, found) == []
            assert found.device_span == least_span(early) <= early.device_span
            shorter += found.device_span < early.device_span

    on()
    assert shorter >= 5


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
