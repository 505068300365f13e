"""CP-SAT (OR-Tools): searches for a schedule, or proves that there is none, within limits and interruptible."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version

from ortools.sat.python import cp_model

from ppopt.bounds.searching import race, search, search_all
from ppopt.constraints import Word
from ppopt.heuristics import Stuck
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.solvers.cpsat_model import Model, NoRoom, OutOfTime
from ppopt.solvers.interrupt import check
from ppopt.solvers.outcome import Limits, Outcome, timed
from ppopt.timing.timed import CyclicOrder

NAME = "CP-SAT"
VERSION = version("ortools")


Progress = Callable[[int | None, int], None]
"""Called with the best value and the lower bound, in ticks, whenever one improves."""


def solve(
    pipeline: Pipeline,
    words: Iterable[Word],
    *,
    objective: str,
    lower: int,
    upper: int,
    horizon: int,
    limits: Limits,
    hint: Schedule | None = None,
    grid: int = 1,
    progress: Progress | None = None,
    strict: bool = False,
    start_by: Sequence[int | None] = (),
) -> Outcome:
    """Search for a schedule that keeps ``words`` with an objective in ``lower..upper`` and every end by ``horizon``.

    All in ticks. With ``lower == upper`` this asks for any schedule of that makespan. With a ``grid`` of several ticks,
    durations and lags are rounded down to it: what is refuted stays refuted, and the found order is timed with the true ones,
    so its value may exceed ``upper``. Where operations without duration passed each other in what was found, the search is made
    again with a ``strict`` model (:class:`~ppopt.solvers.cpsat_model.Model`). ``start_by``: for spans, ticks by which each device
    has started, ``None`` where that is open (:func:`ppopt.bounds.late.start_by`). Ctrl-C stops it and is noted in the outcome.

    On a grid a span is rounded up: begins and ends may both lie between two steps. Within a whole number of steps all times can
    be rounded down to steps.

    Raises:
        TypeError: a word that the model does not know.
        ValueError: words that contradict each other.
    """
    question = _Question(
        pipeline, tuple(words), objective, lower, upper, horizon, limits, grid=grid, strict=strict, start_by=start_by
    )
    begun = time.monotonic()
    model = question.model()
    if isinstance(model, Outcome):
        return model
    if hint is not None:
        model.hint(hint)
    if objective == "span" and model.decision:
        solver, status, interrupted = _raced(model, limits, begun)
    else:
        solver, status, interrupted = _alone(model, limits, begun, objective, progress)
    return question.outcome(model, solver, status, time.monotonic() - begun, interrupted, progress)


def decide(pipeline: Pipeline, words: Iterable[Word], *, targets: Sequence[int], limits: Limits, grid: int = 1) -> list[Outcome]:
    """Whether there are schedules with a makespan of at most so many ticks; all are asked at once, and the first answer ends it.

    Otherwise as :func:`solve` with ``lower == upper``; a thread for each of the ``targets``.
    """
    words, begun = tuple(words), time.monotonic()
    questions = [_Question(pipeline, words, "makespan", target, target, target, limits, grid=grid) for target in targets]
    models = [question.model() for question in questions]
    if any(isinstance(model, Outcome) for model in models):
        return [of if isinstance(of, Outcome) else Outcome(None, target, 0.0) for of, target in zip(models, targets, strict=True)]
    solvers = [propagating("makespan") for _ in models]
    for solver in solvers:
        limit(solver, limits, time.monotonic() - begun, 1)
    check()
    made = [(solver, model) for solver, model in zip(solvers, models, strict=True) if isinstance(model, Model)]
    statuses, interrupted = search_all([(solver, model.model, None) for solver, model in made], first_ends=True)
    spent = time.monotonic() - begun
    return [
        question.outcome(model, solver, status, spent, interrupted)
        for question, (solver, model), status in zip(questions, made, statuses, strict=True)
    ]


@dataclass(frozen=True)
class _Question:
    """The arguments of :func:`solve`."""

    pipeline: Pipeline
    words: tuple[Word, ...]
    objective: str
    lower: int
    upper: int
    horizon: int
    limits: Limits
    grid: int = 1
    strict: bool = False
    start_by: Sequence[int | None] = ()

    def model(self) -> Model | Outcome:
        """The model, if one is needed and there is time to make it."""
        begun, grid, limits = time.monotonic(), self.grid, self.limits
        span = self.objective == "span"
        lowest, highest = self.lower // grid, -(-self.upper // grid) if span else self.upper // grid
        none = Outcome(None, self.upper + 1, 0.0)
        if highest < lowest:
            return none
        try:
            return Model(
                self.pipeline,
                self.words,
                objective=self.objective,
                horizon=self.horizon // grid if span else highest,
                lower=highest if self.lower == self.upper else lowest,
                upper=highest,
                grid=grid,
                strict=self.strict,
                start_by=[None if time is None else time // grid for time in self.start_by],
                until=math.inf if limits.deterministic else begun + limits.seconds,
            )
        except NoRoom:
            return none
        except OutOfTime:
            return Outcome(None, self.lower, time.monotonic() - begun)

    def outcome(
        self,
        model: Model,
        solver: cp_model.CpSolver,
        status: cp_model.CpSolverStatus,
        seconds: float,
        interrupted: bool,
        progress: Progress | None = None,
    ) -> Outcome:
        """What a search of so many seconds has shown."""
        grid, limits = self.grid, self.limits
        spent = solver.response_proto.deterministic_time if limits.deterministic else seconds
        if status == cp_model.MODEL_INVALID:
            raise AssertionError(f"CP-SAT refuses the model: {model.model.validate()}")
        if status == cp_model.INFEASIBLE:
            return Outcome(None, self.upper + 1, spent, interrupted)
        bound = self.lower
        if not model.decision:
            bound = max(bound, _ticks(math.ceil(solver.best_objective_bound - 1e-6), grid, self.objective))
        if status == cp_model.UNKNOWN:
            return Outcome(None, bound, spent, interrupted)
        schedule = None
        with suppress(Stuck, CyclicOrder):  # operations without duration that pass each other; no schedule, but the bound holds
            schedule = timed(self.pipeline, self.words, *model.found(solver), self.objective, grid, model.parts)
        outcome = Outcome(schedule, bound if schedule is not None else min(bound, self.upper), spent, interrupted)
        exact = grid == 1 and (schedule is None or schedule.objective(self.objective) > model.value(solver, self.objective))
        if not exact or self.strict or interrupted or spent >= limits.seconds:
            return outcome
        again = solve(
            self.pipeline,
            self.words,
            objective=self.objective,
            lower=self.lower if model.decision else outcome.lower_bound,
            upper=self.upper,
            horizon=self.horizon,
            limits=replace(limits, seconds=limits.seconds - spent),
            progress=progress,
            strict=True,
            start_by=self.start_by,
        )
        found = [one for one in (again.schedule, schedule) if one is not None]
        best = min(found, key=lambda one: one.objective(self.objective), default=None)
        return Outcome(best, again.lower_bound, spent + again.spent, again.interrupted)


def _ticks(steps: int, grid: int, objective: str) -> int:
    """The least objective in ticks, if that in steps of ``grid`` ticks is at least so many."""
    return grid * steps if objective == "makespan" else max(0, grid * (steps - 1) + 1)


def propagating(objective: str) -> cp_model.CpSolver:
    """A solver for decisions. Measured: propagation decides, not presolve, relaxations or probing; often ten times faster."""
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.cp_model_presolve = False
    parameters.linearization_level = 0
    parameters.cp_model_probing_level = 0
    parameters.inprocessing_probing_dtime = 0.0
    parameters.use_new_integer_conflict_resolution = True
    parameters.use_precedences_in_disjunctive_constraint = objective == "span"  # elsewhere starts are known too well
    return solver


def limit(solver: cp_model.CpSolver, limits: Limits, spent: float = 0.0, workers: int | None = None) -> None:
    """Set the limits, less what is ``spent``; ``workers`` where it is not up to them."""
    parameters = solver.parameters
    parameters.random_seed = limits.seed
    parameters.relative_gap_limit = limits.gap
    parameters.num_workers = workers or limits.threads
    if limits.deterministic:
        parameters.max_deterministic_time = limits.seconds
    else:
        parameters.max_time_in_seconds = max(0.0, limits.seconds - spent)


def _alone(
    model: Model, limits: Limits, begun: float, objective: str, progress: Progress | None
) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus, bool]:
    """The solver, its status, and whether Ctrl-C stopped the search."""
    solver = propagating(objective) if model.decision else cp_model.CpSolver()
    limit(solver, limits, time.monotonic() - begun, 1 if model.decision else None)
    watch = None
    if progress is not None and not model.decision:
        watch = _Watch(progress, model.grid, objective)
        solver.best_bound_callback = watch.bounded
    check()
    return solver, *search(solver, model.model, watch)


def _raced(model: Model, limits: Limits, begun: float) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus, bool]:
    """The same for a decision on spans: one search settles first when the devices begin, since all starts are known well then;
    with a second worker another one does not, which is now and then faster."""
    solvers = []
    for branching in (cp_model.PARTIAL_FIXED_SEARCH, cp_model.AUTOMATIC_SEARCH)[: limits.threads]:
        solver = propagating("makespan")
        solver.parameters.search_branching = branching
        limit(solver, limits, time.monotonic() - begun, 1)
        solvers.append(solver)
    check()
    statuses, interrupted = race(solvers, model.model)
    ended = [place for place, status in enumerate(statuses) if status != cp_model.UNKNOWN]
    place = ended[0] if ended else 0
    return solvers[place], statuses[place], interrupted


class _Watch(cp_model.CpSolverSolutionCallback):
    """Passes on what the search reports, in ticks; found values only where a step is a tick, so that they are exact."""

    def __init__(self, progress: Progress, grid: int, objective: str) -> None:
        super().__init__()
        self._progress, self._grid, self._objective = progress, grid, objective
        self._best: int | None = None

    def on_solution_callback(self) -> None:
        if self._grid == 1:
            self._best = round(self.objective_value)
        self.bounded(self.best_objective_bound)

    def bounded(self, bound: float) -> None:
        """A new lower bound, in steps."""
        self._progress(self._best, _ticks(math.ceil(bound - 1e-6), self._grid, self._objective))
