"""Solving where pairs save time."""

import dataclasses
from fractions import Fraction

import pytest

from ppopt.constraints import Pairable
from ppopt.pipeline import Costs, Pipeline
from ppopt.search import Result, solve, verify
from tests.support.pairs import setting
from tests.support.tiers import thorough


def test_named_pairs_bind_as_they_are() -> None:
    pipeline = Pipeline(2, 4, "bidirectional", costs=Costs(overlap=2))
    bound, free = solve(pipeline, order="dualpipe", workers=1), solve(pipeline, workers=1)
    (row,) = [row for row in free.named if row.name == "dualpipe"]
    assert row.schedule is not None
    assert bound.value == row.schedule.makespan
    assert free.value is not None
    assert free.value <= bound.value
    assert not any(isinstance(word, Pairable) for word in bound.binding)


@pytest.mark.parametrize(
    ("overlap", "dualpipe", "bound"), [(Fraction(3), 26, 25), pytest.param(Fraction(5, 2), 24, 23, marks=thorough)]
)
def test_never_worse_than_dualpipe(overlap: Fraction, dualpipe: int, bound: int) -> None:
    result = solve(setting(4, overlap), deterministic=True, seconds=1)
    (row,) = [row for row in result.named if row.name == "dualpipe"]
    assert row.schedule is not None
    assert row.makespan == dualpipe
    assert result.value is not None
    assert bound <= result.lower_bound <= result.value <= dualpipe


def test_a_second_opinion_runs_pairs_too() -> None:
    pipeline = Pipeline(2, 3, costs=Costs(forward=2, backward=3, overlap=4))
    result = solve(pipeline, workers=1)
    assert (result.reason, result.schedule is not None and result.schedule.order.paired) == ("optimal", True)
    assert verify(result, workers=1).confirmed
    assert refuted(result) is False


def refuted(result: Result) -> bool | None:
    """What the second opinion says of a bound that is one tick too high."""
    ticks = result.ticks._replace(lower_bound=result.ticks.lower_bound + 1)
    return verify(dataclasses.replace(result, ticks=ticks), workers=1).confirmed
