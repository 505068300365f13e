"""A second opinion on a proof: it confirms what is true, refutes what is not, and says so where it cannot tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings

from ppopt import bounds
from ppopt.clock import Limits
from ppopt.pipeline import Memory, Pipeline
from ppopt.search import horizon, solve, verify
from ppopt.search.second_opinion import second_opinion
from tests.support.cases import Case, best_of, left_open, some
from tests.support.strategies import pipelines

FIRST = ("work", "CP-SAT", "ILP")


@pytest.mark.parametrize("first", FIRST)
def test_a_second_opinion_confirms_what_is_true_and_refutes_what_is_not(first: str) -> None:
    confirmed = 0

    @settings(max_examples=3)
    @given(some(pipelines(18)).filter(left_open))
    def on(case: Case) -> None:
        nonlocal confirmed
        pipeline, objective = case
        best = best_of(pipeline, objective)
        assume(best)
        assert best is not None
        for bound in (best, best + 1):
            opinion = second_opinion(
                pipeline,
                objective=objective,
                bound=bound,
                proved_by=first,
                horizon=horizon(pipeline) * pipeline.devices,
                limits=Limits.of(seconds=60, workers=1),
            )
            assert opinion.confirmed is (bound == best)
            assert opinion.trials[-1].route == opinion.route
            assert not (opinion.route or "").startswith(first) or opinion.route == "CP-SAT without cuts"
            if bound > best:
                assert opinion.schedule is not None
                assert opinion.schedule.objective(objective) == best
        confirmed += 1

    on()
    assert confirmed >= 3


def test_a_second_opinion_that_is_not_reached_says_so() -> None:
    pipeline = Pipeline(8, 128, placement="wave", chunks=2, memory=Memory(limit=4))
    least = bounds.memory(pipeline)
    assert least is not None
    claim = least.value + least.value // 50  # not even a list scheduler comes near, and no bound refutes it
    opinion = second_opinion(
        pipeline,
        objective="makespan",
        bound=claim,
        proved_by="CP-SAT",
        horizon=claim - 1,
        limits=Limits.of(seconds=0.3, deterministic=True),
    )
    assert (opinion.confirmed, opinion.route, opinion.schedule) == (None, None, None)
    outcomes = {trial.route: trial.outcome for trial in opinion.trials}
    assert outcomes["lower bounds"].startswith("at least ")
    assert outcomes["ILP"].startswith("too large for the ILP: ")
    assert outcomes["CP-SAT without cuts"] == "not decided in the time"


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_a_wrong_proof_is_refuted(objective: Any) -> None:
    result = solve(Pipeline(3, 4, memory=Memory(limit=2)), objective=objective, workers=1)
    assert result.reason == "optimal"
    assert verify(result, workers=1).confirmed is True
    assert result.value is not None
    wrong = replace(result, ticks=result.ticks._replace(value=result.value + 1, lower_bound=result.lower_bound + 1))
    opinion = verify(wrong, workers=1)
    assert opinion.confirmed is False
    assert opinion.schedule is not None
    assert opinion.schedule.objective(objective) == result.value
