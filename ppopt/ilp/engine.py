"""The ILP solved by an engine, and its answer as a schedule."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import ortools.sat.python.cp_model  # noqa: F401 - PuLP loads HiGHS where it is installed, which has to come after OR-Tools
import pulp

from ppopt.clock import Clock, Limits
from ppopt.constraints import Word
from ppopt.heuristics import Stuck
from ppopt.ilp import engines
from ppopt.ilp.program import Program
from ppopt.ilp.windows import Impossible
from ppopt.pipeline import Pipeline
from ppopt.schedule import Objective, Schedule
from ppopt.solvers.engines import NoEngine
from ppopt.solvers.outcome import Outcome, timed
from ppopt.timing.timed import CyclicOrder

NAME = "ILP"
VERSION: str = pulp.__version__


def solve(
    pipeline: Pipeline,
    words: Iterable[Word],
    *,
    objective: Objective,
    lower: int,
    upper: int,
    horizon: int,
    limits: Limits,
    hint: Schedule | None = None,
    engine: str = "cbc",
) -> Outcome:
    """Search for a schedule that keeps ``words`` with an objective in ``lower..upper`` and every end by ``horizon``, in ticks.

    ``engine``: one of :data:`~ppopt.solvers.engines.ENGINES`. HiGHS alone tells its bound where it stops early; for the others it
    is ``lower`` then. None knows deterministic time: in deterministic mode there is one thread, but real seconds are counted.

    Raises:
        TypeError: a word that the program does not know.
        ValueError: words that contradict each other.
        NoEngine: the engine is not there, or refuses.
        TooLarge: the program would be too large.
        NotForIlp: a word that the program has no way to say.
    """
    words = tuple(words)
    if upper < lower:
        return Outcome(None, upper + 1)
    if limits.clock.over:
        return Outcome(None, lower)
    until = upper if objective == "makespan" else horizon
    try:
        with _charged(limits.clock):
            program = Program(pipeline, words, objective=objective, horizon=until, lower=lower, upper=upper)
    except Impossible:
        return Outcome(None, upper + 1)
    if hint is not None:
        program.hint(hint)
    seconds = max(1.0, limits.clock.left)
    solver = engines.engine(engine, limits, seconds, hint is not None)
    with _charged(limits.clock):
        in_time = _solved(program, engine, solver, seconds)
    solution = program.problem.sol_status  # not `status`, which is "Optimal" at a time limit too
    if pulp.LpSolutionInfeasible == solution or program.problem.status == pulp.LpStatusInfeasible:
        return Outcome(None, upper + 1 if in_time else lower)
    if solution not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return Outcome(None, lower)
    try:
        schedule = timed(pipeline, words, *program.found(), objective)
    except (Stuck, CyclicOrder):  # operations without duration that start at once, in an order that is not known here
        return Outcome(None, lower)
    value = schedule.objective(objective)
    if solution == pulp.LpSolutionOptimal and in_time and not limits.gap:
        return Outcome(schedule, min(value, round(program.objective.value())))
    bound = _dual_bound(program) if engine == "highs" else lower
    return Outcome(schedule, min(value, max(lower, bound)))


@contextmanager
def _charged(clock: Clock) -> Iterator[None]:
    """Charge the seconds that this takes."""
    begun = time.monotonic()
    try:
        yield
    finally:
        clock.charge(time.monotonic() - begun)


def _solved(program: Program, engine: str, solver: pulp.LpSolver, seconds: float) -> bool:
    """Let an engine solve a program; whether that took less than ``seconds``, the time that it was given.

    Else what it says of the program is not believed. CBC (2.10.3) calls programs infeasible that are not where its time ends
    while it prepares them, and crashes there where it was given a start.

    Raises:
        NoEngine: it refuses, in its own words. What it or PuLP warns of is not the user's to mend.
    """
    begun = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.problem.solve(solver)
    except Exception as error:
        if time.monotonic() - begun < seconds:
            raise NoEngine(f"engine: {engine} gives up: {error}") from error
    return time.monotonic() - begun < seconds


def _dual_bound(program: Program) -> int:
    """HiGHS's own lower bound, in ticks; starts may be fractional, but some optimum is whole."""
    bound = program.problem.solverModel.getInfo().mip_dual_bound
    return math.ceil(bound - 1e-6) if math.isfinite(bound) else 0
