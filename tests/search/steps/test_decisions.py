"""Decisions and minimising."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ppopt.heuristics import baselines
from ppopt.pipeline import Pipeline
from ppopt.search.run import Run
from ppopt.search.steps import decisions
from ppopt.search.steps.decisions import Answer, Decide
from tests.support.search import run_of


@pytest.mark.parametrize("answer", [Answer.NO, Answer.OPEN])
def test_each_end_is_asked_once(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the bound asked again after each answer, it would rise tick by tick."""
    asked: list[int] = []

    def ask(run: Run, targets: Sequence[int], seconds: float, grid: int) -> list[Answer]:
        asked.extend(targets)
        if answer is Answer.NO and targets[0] == run.incumbent.lower:
            run.incumbent.prove(targets[0] + 1, "a test")
        return [answer if place == 0 else Answer.UNASKED for place in range(len(targets))]

    monkeypatch.setattr(decisions, "ask", ask)
    run = run_of(Pipeline(4, 12))
    run.incumbent.offer(baselines(run.problem.pipeline)[0][1], "a test")
    low, high = run.incumbent.lower, run.incumbent.value
    decide = Decide()
    decide.run(run, 1.0, between=False)
    assert asked == [low, high - 1]
    assert decide.best_undecided == (answer is Answer.OPEN)
