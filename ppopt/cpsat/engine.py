"""The one place that makes solvers of CP-SAT: how each searches, how long, with which others, and what ends it.

Every search charges the clock that it is given with CP-SAT's deterministic time and with what it takes to build the model, and
stops when nothing is left of it. CP-SAT swallows Ctrl-C; so it searches in other threads, and on Ctrl-C it is stopped from here
and the clock is told.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol, TypeAlias

from ortools.sat.python import cp_model

from ppopt.clock import Clock, Limits
from ppopt.interrupt import check, held

BUILD = 5e-5
"""Deterministic seconds for making a constraint; about what it takes."""


@dataclass(frozen=True)
class Preset:
    """How a solver searches, where that is not up to CP-SAT: its parameters, as far as any of the presets changes them."""

    presolve: bool = True
    probing: bool = True
    inprocessing: bool = True
    """Probing between restarts."""
    relaxed: bool = True
    """Whether it solves linear relaxations."""
    new_conflicts: bool = False
    """The newer resolution of conflicts between integer bounds."""
    precedences: bool = True
    """Whether a machine's propagation looks at known precedences."""
    model_first: bool = False
    """Whether the decision strategy of the model comes first, and what CP-SAT would do then."""

    def solver(self) -> cp_model.CpSolver:
        """A new solver that searches so."""
        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.cp_model_presolve = self.presolve
        parameters.linearization_level = int(self.relaxed)
        parameters.use_new_integer_conflict_resolution = self.new_conflicts
        parameters.use_precedences_in_disjunctive_constraint = self.precedences
        # wrong in CP-SAT 9.15: from coefficients of about 2**31 on, models that had solutions were infeasible (tests/laws)
        parameters.auto_detect_greater_than_at_least_one_of = False
        parameters.presolve_inclusion_work_limit = 0
        if not self.probing:
            parameters.cp_model_probing_level = 0
        if not self.inprocessing:
            parameters.inprocessing_probing_dtime = 0.0
        if self.model_first:
            parameters.search_branching = cp_model.PARTIAL_FIXED_SEARCH
        parameters.catch_sigint_signal = False  # its own handler would swallow Ctrl-C, or abort the process
        return solver


MINIMISING = Preset()
"""For the best schedule of a whole pipeline: CP-SAT's own way, whose workers share what they find."""
DECIDING = Preset(
    presolve=False, probing=False, inprocessing=False, relaxed=False, new_conflicts=True, precedences=False
)  # fmt: skip
"""For decisions, and for windows of a schedule. Measured: propagation decides, not presolve, relaxations or probing; often ten
times faster. A makespan that is given says so much of all starts that known precedences add nothing."""
DECIDING_PRESOLVED = replace(DECIDING, presolve=True)
"""``DECIDING`` after presolve, for models in which the durations are open as well: now the one, now the other is faster."""
SPANS = replace(DECIDING, precedences=True)
"""``DECIDING`` where device spans are minimised: starts are not known that well, and known precedences help."""
BEGINS_FIRST = replace(DECIDING, model_first=True)
"""For decisions on spans: it settles first when the devices begin, since all starts are known well then. Measured on eight
targets: where the times since each device's own begin are known well, too, ``DECIDING`` takes less than three fifths of the time
for four of them, about as long for three, and 1.2 times as long for one."""
WINDOW = Preset(presolve=False, probing=False, relaxed=False, new_conflicts=True)
"""For bounds from the first and last ticks. The relaxations of intervals cost far more than they bring there; probing takes
longer than the rest of presolve, and seldom helps."""
WINDOW_PRESOLVED = replace(WINDOW, presolve=True)
"""``WINDOW`` after presolve: now the one, now the other is by far the faster."""
SMALL = Preset(presolve=False, probing=False, relaxed=False)
"""For small models with tight ranges: presolve, probing above all, often takes ten times as long as the search itself."""
SMALL_RELAXED = replace(SMALL, relaxed=True)
"""``SMALL`` and linear relaxations: what one way does not find another may."""
SMALL_PRESOLVED = replace(SMALL_RELAXED, presolve=True)
"""``SMALL_RELAXED`` after presolve, which pays now and then where starts are fine-grained."""

CUTS = Preset(probing=False, relaxed=False)
"""For cuts of layers. Measured on 56 layers in 8 to 16 stages: 5 to 10 times as fast as with relaxations or probing."""
CUTS_RELAXED = Preset(probing=False)
"""``CUTS`` and linear relaxations: with four stages to a device and many layers nothing else raises the bound."""


class Known(Enum):
    """What a search has shown."""

    BEST = "a solution, and there is no better one"
    FOUND = "a solution"
    NONE = "there is no solution"
    OPEN = "nothing"


_KNOWN = {
    cp_model.OPTIMAL: Known.BEST,
    cp_model.FEASIBLE: Known.FOUND,
    cp_model.INFEASIBLE: Known.NONE,
    cp_model.UNKNOWN: Known.OPEN,
}
_RANK = list(Known)
Watch: TypeAlias = Callable[[int | None, int], None]
"""Called with the best value and the lower bound of an objective, whenever one improves, from any thread."""


class Solution(Protocol):
    """Values for all variables."""

    def value(self, expression: cp_model.LinearExprT, /) -> int:
        """Of an integer expression."""

    def boolean_value(self, literal: cp_model.LiteralT, /) -> bool:
        """Of a literal."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a search has shown; where it has found something, the values of that.

    ``bound``: no solution has an objective below it; of no account where nothing is minimised. ``interrupted``: Ctrl-C ended it.
    """

    known: Known
    bound: int = 0
    interrupted: bool = False
    solver: cp_model.CpSolver | None = None

    @property
    def found(self) -> bool:
        """Whether there is a solution."""
        return self.known in (Known.BEST, Known.FOUND)

    @property
    def certain(self) -> bool:
        """Whether a longer search would not say more: it is the best, or there is none."""
        return self.known in (Known.BEST, Known.NONE)

    @property
    def objective(self) -> int:
        """That of the solution."""
        return round(self._solver.objective_value)

    def value(self, expression: cp_model.LinearExprT, /) -> int:
        """Of an integer expression in the solution."""
        return self._solver.value(expression)

    def boolean_value(self, literal: cp_model.LiteralT, /) -> bool:
        """Of a literal in the solution."""
        return self._solver.boolean_value(literal)

    @property
    def _solver(self) -> cp_model.CpSolver:
        assert self.solver is not None
        assert self.found, self.known
        return self.solver


def no_time_to_build(model: cp_model.CpModel, clock: Clock) -> bool:
    """Whether nothing will be left of the clock by the time that a model is charged which is being built."""
    return clock.left <= (BUILD * len(model.proto.constraints) if clock.deterministic else 0.0)


def search(
    model: cp_model.CpModel,
    limits: Limits,
    preset: Preset,
    *,
    seconds: float = math.inf,
    workers: int | None = None,
    gap: float = 0.0,
    watch: Watch | None = None,
) -> Answer:
    """Search with one solver, whose ``workers`` share what they find; by default as many as the ``limits`` have threads.

    ``seconds``: most for the search, after the model is built. With a ``gap`` a solution is the best where it is within that part
    of the bound.

    Raises:
        AssertionError: CP-SAT refuses the model.
        KeyboardInterrupt: a signal came before the search.
    """
    run = _Run(model, preset.solver(), limits.seed, workers or limits.threads, watch)
    run.solver.parameters.relative_gap_limit = gap
    _charge_building([model], limits.clock)
    return _answers([run], limits.clock, seconds)[0]


def race(model: cp_model.CpModel, limits: Limits, presets: Sequence[Preset], *, seconds: float = math.inf) -> Answer:
    """Search one model in several ways, with one worker each, until the first has ended; the best answer of all.

    Measured: often ten times as fast as workers that share what they find. Only as many ways are taken as the ``limits`` have
    threads, the first ones. Otherwise as :func:`search`.
    """
    _charge_building([model], limits.clock)
    return _raced(model, limits, presets[: limits.threads], seconds)


def in_every_way(model: cp_model.CpModel, limits: Limits, presets: Sequence[Preset], seconds: float) -> Answer:
    """Search a small model in several ways: with several workers they race, with one each has its share of the time.

    The first way has half of it. Otherwise as :func:`search`.
    """
    ways = len(presets)
    if ways == 1:
        return search(model, limits, presets[0], seconds=seconds)
    if limits.threads > 1:
        return race(model, limits, presets, seconds=seconds)
    _charge_building([model], limits.clock)
    answer = Answer(Known.OPEN)
    for place, preset in enumerate(presets):
        share = seconds / 2 if place == 0 else seconds / (2 * (ways - 1))
        answer = _raced(model, limits, [preset], share)
        if answer.found or answer.certain or answer.interrupted:
            break
    return answer


def until_one_ends(models: Sequence[cp_model.CpModel], limits: Limits, preset: Preset) -> list[Answer]:
    """Search several models at once, with one worker each; the first answer ends all. Otherwise as :func:`search`.

    In deterministic mode, which has one thread, they come one after the other, each for an equal share of the time.
    """
    clock = limits.clock
    _charge_building(models, clock)
    runs = [_Run(model, preset.solver(), limits.seed) for model in models]
    if not clock.deterministic:
        return _answers(runs, clock, math.inf, first_ends=True)
    answers = [Answer(Known.OPEN)] * len(runs)
    for place, run in enumerate(runs):
        (answers[place],) = _answers([run], clock, clock.left / (len(runs) - place))
        if answers[place].certain:
            break
    return answers


def at_once(
    models: Sequence[cp_model.CpModel], limits: Limits, preset: Preset, *, seconds: float, seeds: Sequence[int]
) -> list[Answer]:
    """Search several models at once, with one worker each and a seed of its own. Otherwise as :func:`search`."""
    _charge_building(models, limits.clock)
    runs = [_Run(model, preset.solver(), seed) for model, seed in zip(models, seeds, strict=True)]
    return _answers(runs, limits.clock, seconds)


def _charge_building(models: Sequence[cp_model.CpModel], clock: Clock) -> None:
    clock.charge(BUILD * sum(len(model.proto.constraints) for model in models))


@dataclass(frozen=True)
class _Run:
    """A solver, and what it searches."""

    model: cp_model.CpModel
    solver: cp_model.CpSolver
    seed: int
    workers: int = 1
    watch: Watch | None = None

    def solve(self) -> cp_model.CpSolverStatus:
        """Search until the limits end it, or it is stopped."""
        if self.watch is None:
            return self.solver.solve(self.model)
        callback = _Callback(self.watch)
        self.solver.best_bound_callback = callback.bounded
        return self.solver.solve(self.model, callback)


class _Callback(cp_model.CpSolverSolutionCallback):
    """Passes on what a search reports."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        self._best: int | None = None

    def on_solution_callback(self) -> None:
        """A new solution."""
        self._best = round(self.objective_value)
        self.bounded(self.best_objective_bound)

    def bounded(self, bound: float) -> None:
        """A new lower bound."""
        self._watch(self._best, _whole(bound))


def _whole(bound: float) -> int:
    """A bound of integers."""
    return math.ceil(bound - 1e-6)


def _raced(model: cp_model.CpModel, limits: Limits, presets: Sequence[Preset], seconds: float) -> Answer:
    """One answer of solvers that search in these ways, until the first has ended."""
    models = [model, *(model.clone() for _ in presets[1:])]  # threads share none
    runs = [_Run(of, preset.solver(), limits.seed) for of, preset in zip(models, presets, strict=True)]
    answers = _answers(runs, limits.clock, seconds, first_ends=True)
    best = min(answers, key=lambda answer: (not answer.certain, _RANK.index(answer.known)))
    return replace(best, bound=max(answer.bound for answer in answers))


def _answers(runs: Sequence[_Run], clock: Clock, seconds: float, *, first_ends: bool = False) -> list[Answer]:
    """What each of the runs shows within what is left of the clock."""
    check()
    seconds = min(seconds, clock.left)
    if seconds <= 0:
        return [Answer(Known.OPEN, interrupted=clock.interrupted) for _ in runs]
    for run in runs:
        parameters = run.solver.parameters
        parameters.random_seed, parameters.num_workers = run.seed, run.workers
        if clock.deterministic:
            parameters.max_deterministic_time = seconds
        else:
            parameters.max_time_in_seconds = seconds
    statuses, interrupted = _in_threads(runs, first_ends)
    clock.charge(sum(run.solver.response_proto.deterministic_time for run in runs))
    if interrupted:
        clock.interrupt()
    answers = []
    for run, status in zip(runs, statuses, strict=True):
        if status == cp_model.MODEL_INVALID:
            if not _overflows(why := run.model.validate()):
                raise AssertionError(f"CP-SAT refuses the model: {why}")
            answers.append(Answer(Known.OPEN, interrupted=interrupted))
            continue
        bound = run.solver.best_objective_bound
        answers.append(Answer(_KNOWN[status], _whole(bound) if math.isfinite(bound) else 0, interrupted, run.solver))
    return answers


def _overflows(refused: str) -> bool:
    """Whether a model is refused because its numbers together need more than 64 bits, as times of 16 digits do; it stays open."""
    return "overflow" in refused or "domain do not fall in" in refused


def _in_threads(runs: Sequence[_Run], first_ends: bool) -> tuple[list[cp_model.CpSolverStatus], bool]:
    """The statuses of runs that go on at the same time, and whether Ctrl-C stopped them; with ``first_ends`` the first does."""
    results: dict[int, cp_model.CpSolverStatus | BaseException] = {}
    ended = threading.Event()

    def work(place: int) -> None:
        try:
            results[place] = runs[place].solve()
        except BaseException as error:  # handed on to the caller's thread
            results[place] = error
        if first_ends or len(results) == len(runs):
            ended.set()

    threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(len(runs))]
    with held() as came:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if came or ended.is_set():
                time.sleep(0.001)
                for run in runs:
                    run.solver.stop_search()  # without effect before the search has begun, so again and again
            else:
                ended.wait(0.1)  # not for ever: the signal may go to another thread, and then does not end the wait
    statuses = []
    for place in range(len(runs)):
        result = results[place]
        if isinstance(result, BaseException):
            raise result
        statuses.append(result)
    return statuses, bool(came)
