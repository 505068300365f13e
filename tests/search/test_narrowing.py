"""Options that are left out where a schedule is known: never one that a better schedule has."""

import itertools
import math
import random
from fractions import Fraction

import pytest
from hypothesis import strategies as st

from ppopt.clock import Clock
from ppopt.pipeline import Costs, Memory, Pipeline, PipelineError
from ppopt.pipeline.recompute_choices import Choice, RecomputeChoices
from ppopt.schedule import Objective
from ppopt.search.narrowing import narrowed, quick
from tests.support.recompute import random_choice
from tests.support.search import least
from tests.support.strategies import objectives
from tests.support.tiers import drawn


def optima(choices: RecomputeChoices, objective: Objective) -> dict[Choice, Fraction]:
    """The optimum of every choice that leaves room for a microbatch, in the user's unit."""
    found = {}
    for choice in itertools.product(*map(range, map(len, choices.options))):
        try:
            each = choices.resolved(choice)
        except PipelineError:
            continue
        found[choice] = Fraction(least(each, objective), each.ticks.per_unit)
    return found


def between(low: Choice, choice: Choice, high: Choice) -> bool:
    return all(a <= x <= b for a, x, b in zip(low, choice, high, strict=True))


@drawn(10, 60, st.integers(0, 10**6), objectives)
def test_what_is_better_is_never_left_out(number: int, objective: Objective) -> None:
    """Asked for less than each value that some choice has, and for a little more."""
    choices = RecomputeChoices(random_choice(random.Random(number)))
    values = optima(choices, objective)
    for below in sorted({value + more for value in values.values() for more in (0, Fraction(1, 2))}):
        low, high = narrowed(choices, choices.lowest, choices.highest, below, objective, Clock(60))
        assert between(choices.lowest, low, high)
        assert between(low, high, choices.highest)
        assert all(between(low, choice, high) for choice, value in values.items() if value < below)
        if any(value < below for value in values.values()):
            assert quick(choices, low, high, objective) <= min(values.values())


# Stage 0 has room for all microbatches if it recomputes, else for one.
TIGHT = Pipeline(
    2, 6, costs=Costs(per="stage", forward=[2, 2], backward_input=[2, 2], backward_weight=[2, 2], recompute=[1, 2]),
    memory=Memory(activation=[4, 1], recompute_saved=[3, 0.5], limit=[7, 20]), recompute="choose",
)  # fmt: skip


@pytest.mark.parametrize(("below", "low", "high"), [(math.inf, (0, 0), (1, 1)), (60, (1, 0), (1, 1)), (50, (1, 0), (1, 0))])
def test_the_less_is_asked_for_the_less_is_left(below: float, low: Choice, high: Choice) -> None:
    """Below 60 stage 0 has to recompute; below 50 stage 1 may not."""
    choices = RecomputeChoices(TIGHT)
    asked = Fraction(below) if below < math.inf else below
    assert narrowed(choices, choices.lowest, choices.highest, asked, "makespan", Clock(60)) == (low, high)


def test_where_there_is_nothing_one_choice_is_left() -> None:
    choices = RecomputeChoices(TIGHT)
    low, high = narrowed(choices, choices.lowest, choices.highest, Fraction(1), "makespan", Clock(60))
    assert low == high
    assert quick(choices, low, high, "makespan") > 1


def test_without_time_all_are_left() -> None:
    choices = RecomputeChoices(TIGHT)
    assert narrowed(choices, choices.lowest, choices.highest, Fraction(50), "makespan", Clock(0)) == ((0, 0), (1, 1))
