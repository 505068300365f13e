"""Which stages should recompute, against every choice."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.pipeline import Pipeline, PipelineError
from ppopt.pipeline.recompute_choices import RecomputeChoices
from ppopt.search import Result, solve
from tests.support.recompute import random_choice
from tests.support.search import least
from tests.support.strategies import objectives
from tests.support.tiers import thorough


def by_enumeration(pipeline: Pipeline, objective: Objective) -> Fraction:
    """The best over all subsets of the stages, each solved to its optimum."""
    values = []
    for size in range(pipeline.stages + 1):
        for stages in itertools.combinations(range(pipeline.stages), size):
            try:
                each = pipeline.resolved(stages)
            except PipelineError:
                continue
            values.append(Fraction(least(each, objective), each.ticks.per_unit))
    return min(values)


def holds(pipeline: Pipeline, objective: Objective) -> Result:
    """The choice is the best of all."""
    result = solve(pipeline, objective=objective, workers=1, seconds=60)
    assert result.reason == "optimal"
    assert result.value is not None
    assert result.schedule is not None
    assert violations(result.pipeline, result.schedule) == []
    assert result.pipeline == pipeline.resolved(result.pipeline.recomputing)
    best = by_enumeration(pipeline, result.objective)
    assert Fraction(result.ticks.value, result.ticks.per_unit) == best
    assert result.lower_bound == result.value
    choices = RecomputeChoices(pipeline)
    relaxed = choices.relaxed(choices.lowest, choices.highest)
    assert Fraction(least(relaxed, result.objective), relaxed.ticks.per_unit) <= best
    return result


@pytest.mark.parametrize(("examples", "steps"), [(3, 1), pytest.param(40, 3, marks=thorough)], ids=["few", "all"])
def test_the_choice_is_the_best_of_all(examples: int, steps: int) -> None:
    """Some of them are best with some of their stages recomputing, some with none; of many, not all are settled at the root."""
    answers: list[Result] = []

    @settings(max_examples=examples)
    @given(st.randoms(use_true_random=False).map(random_choice), objectives)
    def on(pipeline: Pipeline, objective: Objective) -> None:
        answers.append(holds(pipeline, objective))

    on()
    kinds = {r.pipeline.recompute if isinstance(r.pipeline.recompute, str) else "some" for r in answers}
    assert kinds >= {"none", "some"}
    assert max(len(r.steps) for r in answers) >= steps
