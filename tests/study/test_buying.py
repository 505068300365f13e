"""What a frontier says to somebody who buys memory."""

from fractions import Fraction

import pytest

from ppopt.pipeline import Costs, Memory, Pipeline, Units
from ppopt.study.buying import best_buy, best_by_limit, recommendation, today
from ppopt.study.frontier import Frontier, frontier
from tests.support.tiers import thorough


@pytest.fixture(scope="module")
def line() -> Frontier:
    """Two devices and four microbatches: 20 at 1, 13 at 2 (the optimum); 1F1B takes 15 and holds 2."""
    pipeline = Pipeline(2, 4, units=Units("ms", "GiB"))
    return frontier(pipeline, limits=[1, 2], seconds=20, workers=1)


def test_the_memory_of_today_and_the_best_buy(line: Frontier) -> None:
    assert today([line], "1f1b") == (2, 15)
    assert [float(point.scale) for point in best_by_limit([line])] == [1, 2]
    assert best_buy(best_by_limit([line])).scale == 2
    assert recommendation([line]) == [
        "Today: 1f1b takes 15 ms and needs 2 GiB on its fullest device.",
        "Same memory: 2 GiB, 13 ms, linear (proved optimal there), 13.3 % less time.",
        "Best buy: 2 GiB, 13 ms, linear (proved optimal there), 13.3 % less time than 1f1b.",
        "More memory gains nothing.",
    ]


def test_less_memory_that_is_as_fast(line: Frontier) -> None:
    slow = recommendation([line], "gpipe")  # 15 too, with 4
    assert slow[0] == "Today: gpipe takes 15 ms and needs 4 GiB on its fullest device."
    assert slow[2] == "As fast as gpipe: 2 GiB, 13 ms, linear (proved optimal there); that is 2 GiB less."


def test_a_schedule_that_does_not_apply_is_left_out(line: Frontier) -> None:
    said = recommendation([line], "no-such-schedule")
    assert said == ["Best buy: 2 GiB, 13 ms, linear (proved optimal there).", "More memory gains nothing."]


@thorough
def test_limits_in_proportion_are_told_as_factors() -> None:
    pipeline = Pipeline(2, 2, costs=Costs(forward=1), memory=Memory(limit=(2, 1)))
    scaled = frontier(pipeline, limits=[Fraction(1)], seconds=20, workers=1)
    assert recommendation([scaled])[-2].startswith("Best buy: 1 times the limits, ")


def test_a_larger_tolerance_buys_less(line: Frontier) -> None:
    assert best_buy(best_by_limit([line]), 0.6).scale == 1
    assert "More memory gains 35.0 % at 2 GiB, then nothing." in recommendation([line], tolerance=0.6)
