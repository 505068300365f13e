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
MOST = 10**7
"""Ticks up to which engines, which reckon with decimals, are believed. CBC reads 12 digits, writes 8, and takes for equal what
differs by less than 1e-7 of its rows. Measured with random pipelines: of programs of 10^8 ticks and more it calls some infeasible
that are not, most of those of 10^14."""


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
    until = upper if objective == "makespan" else horizon
    if limits.clock.over or until > MOST:
        return Outcome(None, lower)
    try:
        with _charged(limits.clock):
            program = Program(pipeline, words, objective=objective, horizon=until, lower=lower, upper=upper)
    except Impossible:
        return Outcome(None, upper + 1)
    if hint is not None:
        program.hint(hint)
    in_time = _solved(program, engine, limits, hint is not None)
    if in_time and _infeasible(program) and engine == "cbc":  # it is sometimes wrong where it has prepared the program
        in_time = _solved(program, engine, limits, hint is not None, prepared=False)
    if _infeasible(program):
        there_is_one = hint is not None and hint.objective(objective) <= upper
        return Outcome(None, upper + 1 if in_time and not there_is_one else lower)
    solution = program.problem.sol_status  # not `status`, which is "Optimal" at a time limit too
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


def _infeasible(program: Program) -> bool:
    """Whether an engine has said so."""
    problem = program.problem
    return bool(problem.sol_status == pulp.LpSolutionInfeasible or problem.status == pulp.LpStatusInfeasible)


def _solved(program: Program, engine: str, limits: Limits, start: bool, *, prepared: bool = True) -> bool:
    """Let an engine solve a program for the time that is left; whether it took less than that.

    Else what it says of the program is not believed. CBC (2.10.3) calls programs infeasible that are not where its time ends
    while it prepares them, and crashes there where it was given a ``start``.

    Raises:
        NoEngine: it refuses, in its own words. What it or PuLP warns of is not the user's to mend.
    """
    seconds = max(1.0, limits.clock.left)
    solver = engines.engine(engine, limits, seconds, start, prepared=prepared)
    begun = time.monotonic()
    try:
        with _charged(limits.clock), warnings.catch_warnings():
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
