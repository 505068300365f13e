"""Random pipelines with an objective, and those that leave something to do."""

from hypothesis import strategies as st

from ppopt import bounds, cpsat
from ppopt.bounds import Objective
from ppopt.constraints import cuts_of, free_choices
from ppopt.heuristics import baselines
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from tests.support.strategies import objectives
from tests.support.unaided import optimum

Case = tuple[Pipeline, Objective]


def some(pipelines: st.SearchStrategy[Pipeline]) -> st.SearchStrategy[Case]:
    """With an objective."""
    return st.tuples(pipelines, objectives)


def greedy(pipeline: Pipeline, objective: Objective) -> int:
    """The best of the list scheduler."""
    return min(schedule.objective(objective) for _, schedule in baselines(pipeline))


def worst(pipeline: Pipeline, objective: Objective) -> Schedule:
    """The worst of the list scheduler: a start that leaves much to be improved."""
    return max((schedule for _, schedule in baselines(pipeline)), key=lambda schedule: schedule.objective(objective))


def left_open(case: Case) -> bool:
    """Whether the list scheduler and the closed forms leave it open."""
    closed = [of(*case, pairs=True) for of in (bounds.work, bounds.machine)]
    return greedy(*case) > max(bound.value for bound in closed if bound is not None)


def best_of(pipeline: Pipeline, objective: Objective) -> int | None:
    """The optimum by CP-SAT; ``None`` where operations without duration pass each other."""
    return optimum(cpsat, pipeline, objective, (*free_choices(pipeline), *cuts_of(pipeline)))
