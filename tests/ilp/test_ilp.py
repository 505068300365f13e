"""The integer program: its cuts, named constraints, what it cannot take."""

from typing import Any

import pytest
from hypothesis import given, settings

from ppopt import ilp
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import Family, Precede, Word, always_split, cuts_of, rules_of, splitting_is_free
from ppopt.named import NAMED
from ppopt.op import Kind
from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.schedule import Order
from ppopt.search import solve
from ppopt.solvers.outcome import Outcome
from ppopt.timing import time_order
from tests.support import golden
from tests.support.many import each
from tests.support.strategies import pipelines


def words_of(pipeline: Pipeline) -> tuple[Word, ...]:
    split = always_split(pipeline) if splitting_is_free(pipeline) else ()
    return (*rules_of(pipeline), *split)


def horizon_of(pipeline: Pipeline) -> int:
    latency = int(pipeline.ticks.latency.max())
    return int(pipeline.work.sum()) + 4 * pipeline.stages * latency * pipeline.microbatches + 1


def outcome_of(solver: Any, pipeline: Pipeline, objective: str, words: tuple[Word, ...], seconds: float = 60) -> Outcome:
    horizon = horizon_of(pipeline)
    limits = Limits.of(seconds=seconds, workers=1)
    outcome = solver.solve(pipeline, words, objective=objective, lower=0, upper=horizon, horizon=horizon, limits=limits)
    if outcome.schedule is not None:
        assert violations(pipeline, outcome.schedule) == []
        assert outcome.lower_bound <= outcome.schedule.objective(objective)
    return outcome


@settings(max_examples=8)
@given(pipelines(10))
def test_the_cuts_keep_the_optimum(pipeline: Pipeline) -> None:
    words = words_of(pipeline)
    both = [outcome_of(ilp, pipeline, "makespan", of) for of in (words, (*words, *cuts_of(pipeline)))]
    best = min(outcome.schedule.makespan for outcome in both if outcome.schedule is not None)
    assert max(outcome.lower_bound for outcome in both) <= best  # whichever was decided in time


@pytest.mark.parametrize("schedule", golden.FIRST_SIX)
def test_named_constraints_give_the_golden_makespan(schedule: str) -> None:
    def check(entry: golden.Entry) -> None:
        timing = entry["timing"]["unit_comm1"]
        pipeline = golden.pipeline_of(entry, timing)
        words = (*rules_of(pipeline), *NAMED[schedule].words(pipeline, **entry["params"]))
        outcome = outcome_of(ilp, pipeline, "makespan", words)
        assert outcome.schedule is not None
        assert outcome.schedule.makespan == outcome.lower_bound == timing["makespan"]

    each({key: e for key, e in golden.of(schedule).items() if e["devices"] <= 4 and e["microbatches"] <= 8}, check)


def test_an_unknown_word_raises() -> None:
    pipeline = Pipeline(1, 1)
    with pytest.raises(TypeError, match="hurry"):
        ilp.solve(
            pipeline, [*rules_of(pipeline), "hurry"], objective="makespan", lower=0, upper=9, horizon=9, limits=Limits.of(1)
        )


def test_stopping_early_claims_nothing() -> None:
    pipeline = Pipeline(4, 12, memory=Memory(limit=3))
    words = (*rules_of(pipeline), *cuts_of(pipeline))
    outcome = ilp.solve(pipeline, words, objective="span", lower=36, upper=200, horizon=200, limits=Limits.of(seconds=1))
    assert outcome.lower_bound >= 36
    if outcome.schedule is not None:
        assert outcome.schedule.device_span >= outcome.lower_bound


def test_contradictory_words_are_infeasible() -> None:
    pipeline = Pipeline(1, 2)
    words = (*rules_of(pipeline), *(Precede(Family(0, kind), Family(0, Kind.F)) for kind in (Kind.B, Kind.I)))
    outcome = ilp.solve(pipeline, words, objective="makespan", lower=0, upper=99, horizon=99, limits=Limits.of(10))
    assert outcome.schedule is None
    assert outcome.lower_bound == 100


def test_a_hint_in_another_order_than_the_cuts_have_is_taken() -> None:
    """W1 before W0, where W0 has to start two operations before the end."""
    pipeline = Pipeline(1, 2)
    words = (*words_of(pipeline), *cuts_of(pipeline))
    hint = time_order(pipeline, Order.of(pipeline, [["0F0", "0F1", "0I0", "0I1", "0W1", "0W0"]]))
    most = hint.makespan
    outcome = ilp.solve(pipeline, words, objective="makespan", lower=0, upper=most, horizon=most, limits=Limits.of(10), hint=hint)
    assert outcome.schedule is not None
    assert outcome.lower_bound == outcome.schedule.makespan == most


def test_a_program_that_just_fits_is_not_infeasible() -> None:
    """CBC says so of this one where it prepares it: one device computes all the time."""
    costs = Costs(forward=6364, backward_input=3775, backward_weight=1442)
    pipeline = Pipeline(1, 2, costs=costs, memory=Memory(limit=2))
    words, most = (*words_of(pipeline), *cuts_of(pipeline)), 2 * (6364 + 3775 + 1442)
    outcome = ilp.solve(pipeline, words, objective="makespan", lower=0, upper=most, horizon=most, limits=Limits.of(60))
    assert outcome.schedule is not None
    assert outcome.lower_bound == outcome.schedule.makespan == most


def test_times_of_many_digits_are_not_asked_of_engines() -> None:
    """They reckon with decimals: programs with such times are called infeasible that are not."""
    pipeline = Pipeline(1, 3, costs=Costs(forward=2 / 3, backward=1))
    words, most = words_of(pipeline), int(pipeline.work.sum())
    outcome = ilp.solve(pipeline, words, objective="makespan", lower=7, upper=most, horizon=most, limits=Limits.of(60))
    assert (outcome.schedule, outcome.lower_bound) == (None, 7)
    result = solve(Pipeline(3, 4, costs=Costs(forward=2 / 3), memory=Memory(limit=2)), solver="ilp", workers=1, seconds=5)
    assert result.value is not None
    assert any(step.name == "ILP: minimise" and "not exact to its engines" in step.outcome for step in result.steps)
