"""Searches, step by step."""

from __future__ import annotations

from typing import Any

from ppopt.checker import violations
from ppopt.clock import Clock
from ppopt.named import rows_of
from ppopt.pipeline import Pipeline
from ppopt.search import Result, solve
from ppopt.search.incumbent import Incumbent
from ppopt.search.problem import Problem
from ppopt.search.run import Run
from ppopt.search.turns import Entry, Rounds, Turn


def turns(entries: tuple[Entry, ...]) -> list[Turn]:
    return [turn for entry in entries for turn in (entry.turns if isinstance(entry, Rounds) else (entry,))]


def run_of(pipeline: Pipeline, seconds: float = 10, **asked: Any) -> Run:
    problem = Problem(pipeline, **asked)
    return Run(problem, Clock(seconds, deterministic=True), Incumbent(problem), workers=1, rows=lambda: rows_of(pipeline))


def proved(pipeline: Pipeline, **options) -> Result:
    result = solve(pipeline, workers=1, **options)
    assert (result.reason, result.limit) == ("optimal", None)
    assert result.schedule is not None
    assert violations(pipeline, result.schedule) == []
    assert result.ticks.value == result.ticks.lower_bound == result.schedule.objective(result.objective)
    assert result.value == result.lower_bound == pipeline.time(result.ticks.lower_bound)
    return result
