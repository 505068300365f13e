"""Many small CP-SAT solves within one limit of time, interruptible."""

from __future__ import annotations

import os
import time

from ortools.sat.python import cp_model

from ppopt.bounds.searching import search
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

    def solve(self, model: cp_model.CpModel, seconds: float, way: int = 0) -> tuple[cp_model.CpSolver | None, bool]:
        """The solver with a solution (``None``: none found), and whether the answer is certain: the best there is, or none.

        ``way`` is the place in :data:`WAYS` of how to search.
        """
        seconds = min(seconds, self.left)
        if seconds <= 0:
            return None, False
        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.random_seed = self.limits.seed
        parameters.cp_model_presolve, parameters.linearization_level = WAYS[way]
        parameters.cp_model_probing_level = 0
        if self.limits.deterministic:
            parameters.num_workers = 1
            parameters.max_deterministic_time = seconds
        else:
            parameters.num_workers = self.limits.workers or os.cpu_count() or 1
            parameters.max_time_in_seconds = seconds
        status, interrupted = search(solver, model)
        self.interrupted |= interrupted
        self._counted += solver.response_proto.deterministic_time + _BUILD * len(model.proto.constraints)
        if status == cp_model.MODEL_INVALID:
            raise AssertionError(f"CP-SAT refuses the model: {model.validate()}")
        return (solver if status in _FOUND else None), status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
