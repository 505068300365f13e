"""Many small CP-SAT solves within one limit of time, interruptible."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ortools.sat.python import cp_model

from ppopt.bounds.searching import race
from ppopt.solvers.outcome import Limits

WAYS = ((False, 0), (True, 1), (False, 1))
"""With presolve or without, and the level of linear relaxation.

These models are small, their ranges tight: presolve, probing above all, often takes ten times as long as the search itself.
Where starts are fine-grained it pays now and then, and what one way does not find another may.
"""
_BUILD = 5e-5
"""Deterministic seconds for making a constraint; about what it takes."""
SHARES = (0.5, 0.25, 0.25)
"""Of the time for a question, what each way gets."""
_MOST = 6
"""Solvers that race."""
_FOUND = (cp_model.OPTIMAL, cp_model.FEASIBLE)


class Budget:
    """What is left of the limits; and every solve, so that it is counted.

    In deterministic mode time is CP-SAT's deterministic time, and one worker searches. After Ctrl-C nothing is left.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.interrupted = False
        self._begun = time.monotonic()
        self._counted = 0.0

    @property
    def spent(self) -> float:
        """Seconds, deterministic ones in deterministic mode."""
        return self._counted if self.limits.deterministic else time.monotonic() - self._begun

    @property
    def left(self) -> float:
        """Seconds."""
        return 0.0 if self.interrupted else max(0.0, self.limits.seconds - self.spent)

    def charge(self, seconds: float) -> None:
        """Count work that is not CP-SAT's in deterministic mode."""
        self._counted += seconds

    def solve(self, model: cp_model.CpModel, seconds: float, ways: Sequence[int] = (0,)) -> tuple[cp_model.CpSolver | None, bool]:
        """The solver with a solution (``None``: none found), and whether the answer is certain: the best there is, or none.

        ``ways`` are places in :data:`WAYS` of how to search. With several workers one worker races for each of them (measured:
        often ten times as fast as workers that share what they find); else each has its share of the time.
        """
        workers = self.limits.threads
        if len(ways) > 1 and workers > 1:
            entries = [(ways[place % len(ways)], place // len(ways)) for place in range(min(workers, _MOST))]
            return self._race(model, seconds, entries, 1)
        for way in ways:
            share = seconds * SHARES[way] / sum(SHARES[other] for other in ways)
            solver, sure = self._race(model, share, [(way, 0)], workers)
            if solver is not None or sure:
                return solver, sure
        return None, False

    def _race(
        self, model: cp_model.CpModel, seconds: float, entries: Sequence[tuple[int, int]], workers: int
    ) -> tuple[cp_model.CpSolver | None, bool]:
        """The same with a solver of so many ``workers`` for each way to search and what is added to the seed."""
        seconds = min(seconds, self.left)
        if seconds <= 0:
            return None, False
        solvers = [cp_model.CpSolver() for _ in entries]
        for solver, (way, seed) in zip(solvers, entries, strict=True):
            parameters = solver.parameters
            parameters.random_seed = self.limits.seed + seed
            parameters.cp_model_presolve, parameters.linearization_level = WAYS[way]
            parameters.cp_model_probing_level = 0
            parameters.num_workers = workers
            if self.limits.deterministic:
                parameters.max_deterministic_time = seconds
            else:
                parameters.max_time_in_seconds = seconds
        statuses, interrupted = race(solvers, model)
        self.interrupted |= interrupted
        self._counted += sum(solver.response_proto.deterministic_time for solver in solvers)
        self._counted += _BUILD * len(model.proto.constraints)
        if cp_model.MODEL_INVALID in statuses:
            raise AssertionError(f"CP-SAT refuses the model: {model.validate()}")
        found = next((solver for solver, status in zip(solvers, statuses, strict=True) if status in _FOUND), None)
        return found, cp_model.OPTIMAL in statuses or cp_model.INFEASIBLE in statuses
