"""Searches, step by step."""

from __future__ import annotations

from typing import Any

from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.clock import Clock
from ppopt.named import find, rows_of
from ppopt.pipeline import Pipeline
from ppopt.search import Result, Settings, solve, solve_closed
from ppopt.search.incumbent import Incumbent
from ppopt.search.problem import Problem
from ppopt.search.run import Run
from ppopt.search.step import Step
from ppopt.search.tuning import LEAST
from ppopt.search.turns import Turn
from tests.support.cases import worst


def run_of(pipeline: Pipeline, seconds: float = 10, **asked: Any) -> Run:
    problem = Problem(pipeline, **asked)
    return Run(problem, Clock(seconds, deterministic=True), Incumbent(problem), workers=1, rows=lambda: rows_of(pipeline))


def bound_by_name(pipeline: Pipeline, name: str, **asked: Any) -> Run:
    """A search under the words of a named schedule."""
    return run_of(pipeline, words=tuple(find(name).words(pipeline)), **asked)


def begun(run: Run) -> Run:
    """The same search with the worst list schedule as the best that is known."""
    run.incumbent.offer(worst(run.problem.pipeline, run.problem.objective), "a test")
    return run


def take(run: Run, step: type[Step], seconds: float = 1.0, **options: Any) -> float:
    """Take a step, whether or not it is worth taking; the deterministic seconds that it charges, which are never none."""
    before = run.clock.left
    run.take(Turn(step, options=options), seconds)
    charged = before - run.clock.left
    assert charged >= LEAST * (1 - 1e-9) or run.taken[-1].outcome.startswith("left out"), step.name
    return charged


def reason(step: type[Step], run: Run) -> str | None:
    """Why a step does not apply."""
    return run.step(step).applies(run)


def least(pipeline: Pipeline, objective: Objective = "makespan") -> int:
    """The optimum in ticks, of a search that takes nothing from named schedules, which are not made."""
    result = solve_closed(pipeline, objective, Settings(seconds=60, workers=1))
    assert result.reason == "optimal"
    assert result.ticks.value is not None
    return result.ticks.value


def proved(pipeline: Pipeline, **options) -> Result:
    result = solve(pipeline, workers=1, **options)
    assert (result.reason, result.limit) == ("optimal", None)
    assert result.schedule is not None
    assert violations(pipeline, result.schedule) == []
    assert result.ticks.value == result.ticks.lower_bound == result.schedule.objective(result.objective)
    assert result.value == result.lower_bound == pipeline.time(result.ticks.lower_bound)
    return result
