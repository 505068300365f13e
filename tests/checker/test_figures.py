"""The checker on the figures and the outcome that a result claims."""

from typing import Any

import pytest

from ppopt.checker import Rule, mismatches
from tests.support.checked import TWO, VALID, only

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
