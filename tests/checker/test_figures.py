"""The checker on the figures and the outcome that a result claims."""

from fractions import Fraction
from typing import Any

import pytest

from ppopt.checker import Rule, Violation, mismatches
from ppopt.named import find
from ppopt.pipeline import Costs, Memory, Pipeline
from tests.support.checked import TWO, VALID, only, records

FIGURES: dict[str, Any] = {
    "makespan": 8,
    "device_span": 8,
    "bubble_ratio": 1 - 6 / 16,
    "span_bubble_ratio": 1 - 3 / 8,
    "summed_span_bubble_ratio": 1 - 6 / 11,
    "overhead": 5 / 3,
    "efficiency": 6 / 16,
    "speed_up": 6 / 8,
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
        ("summed_span_bubble_ratio", 0.6),
        ("efficiency", 0.5),
        ("speed_up", 0.8),
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


FIRST: dict[str, Any] = {
    "work": 3,
    "idle": {"start": 0, "data": 4, "link": 1, "memory": 0, "order": 0, "end": 0},
    "idle_by_phase": {"warm-up": 5, "steady": 0, "cool-down": 0},
    "utilisation": 3 / 8,
    "sent": 1,
    "received": 1,
    "peak_memory": 1,
}
SECOND = {**FIRST, "idle": {"start": 2, "data": 0, "link": 0, "memory": 0, "order": 0, "end": 3}}


@pytest.mark.parametrize(("recompute", "right"), [("none", 6 / 16), ("all", 4 / 16)])
def test_efficiency_is_without_what_is_repeated(recompute: str, right: float) -> None:
    costs = Costs(forward=1, backward=1 if recompute == "all" else 2, recompute=1)
    pipeline = TWO.changed(
        costs=costs, memory=Memory(recompute_saved=0), recompute=recompute
    )  # of a backward of 2 one half is the forward again
    assert mismatches(pipeline, VALID, metrics={**FIGURES, "efficiency": right, "speed_up": 2 * right}) == []
    found = only(mismatches(pipeline, VALID, metrics={**FIGURES, "efficiency": right + 0.01, "speed_up": 2 * right}))
    assert "metrics.efficiency" in found.message


def of_devices(first: Any) -> list[Violation]:
    return mismatches(TWO, VALID, metrics={**FIGURES, "devices": [first, SECOND]})


def test_right_figures_of_devices_are_accepted() -> None:
    assert of_devices(FIRST) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"work": 2}, "work"),
        ({"peak_memory": 2}, "peak_memory"),
        ({"utilisation": 0.5}, "utilisation"),
        ({"idle": {**FIRST["idle"], "data": 3}}, "sum of idle"),
        ({"idle": {**FIRST["idle"], "data": "much"}}, "sum of idle"),
        ({"idle_by_phase": {"warm-up": 5, "steady": 1}}, "sum of idle_by_phase"),
        ({"idle": {**FIRST["idle"], "data": 3, "end": 1}}, "idle.end"),
        ({"idle": {**FIRST["idle"], "data": 3, "start": 1}}, "idle.start"),
    ],
)
def test_wrong_figures_of_devices_are_found(change: dict[str, Any], told: str) -> None:
    found = only(of_devices({**FIRST, **change}))
    assert (found.rule, found.device) == (Rule.METRIC, 0)
    assert f"metrics.devices[0]: {told}" in found.message


@pytest.mark.parametrize("devices", [[], "none", [1, 2]])
def test_what_lists_no_devices_is_found(devices: Any) -> None:
    assert only(mismatches(TWO, VALID, metrics={**FIGURES, "devices": devices})).message.startswith(
        "metrics.devices has to list 2"
    )


def test_the_speed_up_counts_both_parts_of_a_pair() -> None:
    """DualPipe-V with pairs of 2.5: one device takes 3 for each forward with its backward."""
    schedule = find("dualpipe-v").schedule(Pipeline(2, 6, costs=Costs(overlap=Fraction(5, 2))))
    pairs = sum(text.count("OVERLAP") for row in schedule.order.texts() for text in row)
    right = 2 * 6 * 3 / schedule.pipeline.time(schedule.makespan)
    assert pairs
    assert schedule.speed_up == pytest.approx(right)
    assert sum(schedule.work) < 2 * 6 * 3 * schedule.pipeline.ticks.per_unit
    figures = {"speed_up": right, "summed_span_bubble_ratio": schedule.summed_span_bubble_ratio}
    assert mismatches(schedule.pipeline, records(schedule), metrics=figures) == []
    assert only(mismatches(schedule.pipeline, records(schedule), metrics={"speed_up": right * 1.01})).rule == Rule.METRIC
