"""A solver of CP-SAT that searches in a thread of its own, and what it has shown.

CP-SAT swallows Ctrl-C; so it searches in other threads than the main one, and is stopped from there.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from ortools.sat.python import cp_model

from ppopt.clock import Clock


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


@dataclass(frozen=True)
class Run:
    """A solver, and what it searches."""

    model: cp_model.CpModel
    solver: cp_model.CpSolver
    seed: int
    workers: int = 1
    watch: Watch | None = None

    def limit(self, seconds: float, clock: Clock) -> None:
        """Let it search for so long, as ``clock`` counts."""
        parameters = self.solver.parameters
        parameters.random_seed, parameters.num_workers = self.seed, self.workers
        if clock.deterministic:
            parameters.max_deterministic_time = seconds
        else:
            parameters.max_time_in_seconds = seconds

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


def _overflows(refused: str) -> bool:
    """Whether a model is refused because its numbers together need more than 64 bits, as times of 16 digits do; it stays open."""
    return "overflow" in refused or "domain do not fall in" in refused


class Thread:
    """A thread in which a run searches from now on; it sets ``ended`` at its end."""

    def __init__(self, run: Run, ended: threading.Event) -> None:
        self._run, self._ended = run, ended
        self._result: cp_model.CpSolverStatus | BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._result = self._run.solve()
        except BaseException as error:  # handed on to the thread that asks for the answer
            self._result = error
        self._ended.set()

    @property
    def alive(self) -> bool:
        """Whether it has no result yet."""
        return self._result is None

    def stop(self) -> None:
        """Without effect before the search has begun, so again and again."""
        self._run.solver.stop_search()

    def answer(self, interrupted: bool) -> Answer:
        """What it has shown, once it has ended.

        Raises:
            AssertionError: CP-SAT refuses the model.
        """
        self._thread.join()
        if isinstance(self._result, BaseException):
            raise self._result
        assert self._result is not None
        solver = self._run.solver
        if self._result == cp_model.MODEL_INVALID:
            if not _overflows(why := self._run.model.validate()):
                raise AssertionError(f"CP-SAT refuses the model: {why}")
            return Answer(Known.OPEN, interrupted=interrupted)
        bound = solver.best_objective_bound
        return Answer(_KNOWN[self._result], _whole(bound) if math.isfinite(bound) else 0, interrupted, solver)


def wait(threads: Collection[Thread], ended: threading.Event, came: Sequence[int], *, first_ends: bool) -> None:
    """Until none of these is alive, or with ``first_ends`` one is not, or a signal ``came``; each sets ``ended`` at its end."""
    while threads and not came and (all if first_ends else any)(thread.alive for thread in threads):
        ended.wait(0.1)  # not for ever: the signal may go to another thread, and then does not end the wait
        ended.clear()


def stop(threads: Collection[Thread]) -> None:
    """Those that are alive, and wait until none is."""
    while any(thread.alive for thread in threads):
        for thread in threads:
            thread.stop()
        time.sleep(0.001)
