"""What a solver finds and proves by itself, for comparing methods with each other."""

from collections.abc import Sequence
from typing import Any

from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import Word, rules_of
from ppopt.pipeline import Pipeline
from ppopt.search import horizon
from ppopt.solvers.outcome import Outcome


def solved(
    solver: Any,
    pipeline: Pipeline,
    objective: Objective,
    words: Sequence[Word],
    seconds: float = 60,
    *,
    deterministic: bool = False,
) -> Outcome:
    """What a solver says of the rules and ``words``, without any bound or start; its schedule checked."""
    until = horizon(pipeline)
    outcome: Outcome = solver.solve(
        pipeline,
        (*rules_of(pipeline), *words),
        objective=objective,
        lower=0,
        upper=until,
        horizon=until * (pipeline.devices if objective == "span" else 1),
        limits=Limits.of(seconds=seconds, workers=1, deterministic=deterministic),
    )
    if outcome.schedule is not None:
        assert violations(pipeline, outcome.schedule) == []
        assert outcome.lower_bound <= outcome.schedule.objective(objective)
    return outcome


def optimum(solver: Any, pipeline: Pipeline, objective: Objective, words: Sequence[Word], seconds: float = 60) -> int | None:
    """``None``: not in time, or operations without duration pass each other."""
    outcome = solved(solver, pipeline, objective, words, seconds)
    proved = outcome.schedule is not None and outcome.lower_bound == outcome.schedule.objective(objective)
    return outcome.lower_bound if proved else None
