"""What CP-SAT says of words."""

from ppopt import cpsat
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import cuts_of, rules_of
from ppopt.pipeline import Pipeline
from ppopt.solvers.outcome import Outcome


def best(pipeline: Pipeline, *extra, objective="makespan", upper=1000, lower=0, cuts=True, **options) -> Outcome:
    words = (*rules_of(pipeline), *extra, *(cuts_of(pipeline, extra) if cuts else ()))
    limits = Limits.of(30, workers=1)
    return cpsat.solve(pipeline, words, objective=objective, lower=lower, upper=upper, horizon=1000, limits=limits, **options)


def value(pipeline: Pipeline, *extra, objective="makespan", **options) -> int:
    outcome = best(pipeline, *extra, objective=objective, **options)
    assert outcome.schedule is not None
    assert violations(pipeline, outcome.schedule) == []
    assert outcome.lower_bound == outcome.schedule.objective(objective)
    return outcome.lower_bound
