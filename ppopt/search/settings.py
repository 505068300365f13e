"""How long a search may take, and how it goes about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

from ppopt.clock import Limits
from ppopt.solvers.engines import ENGINES

Solver = Literal["auto", "cp-sat", "ilp"]
SOLVERS: tuple[str, ...] = get_args(Solver)
MOST_WORKERS = 1024
"""Most threads of a solver."""


class SettingsFields(TypedDict, total=False):
    """The fields of :class:`Settings`, as keywords of :func:`ppopt.search.solve`."""

    seconds: float
    gap: float
    solver: Solver
    workers: int | None
    seed: int
    deterministic: bool
    engine: str | None


@dataclass(frozen=True)
class Settings:
    """How long a search may take, and how it goes about it.

    - ``seconds``: the time limit. With ``deterministic`` they are counted by the solver, about as long and repeatable.
    - ``gap``: stop once ``(value - lower bound) / value`` is at most this fraction.
    - ``solver``: ``"ilp"`` leaves what quick schedules and bounds in closed form do not settle to the integer program.
    - ``workers``: threads; by default all cores. ``deterministic`` has one.
    - ``engine``: which engine solves the integer program (:data:`~ppopt.solvers.engines.ENGINES`), by default CBC. To name one is
      to choose ``solver = "ilp"``.
    - ``seed``: of the search.
    - ``deterministic``: the same call gives the same answer.

    Raises:
        ValueError: a value out of range, or several workers in deterministic mode.
    """

    seconds: float = 60.0
    gap: float = 0.0
    solver: Solver = "auto"
    workers: int | None = None
    seed: int = 0
    deterministic: bool = False
    engine: str | None = None

    def limits(self) -> Limits:
        """With a clock that runs from now on."""
        return Limits.of(self.seconds, self.gap, self.workers, self.seed, self.deterministic)

    def __post_init__(self) -> None:
        if not (0 < self.seconds < math.inf):
            raise ValueError(f"seconds: expected a finite number > 0, got {self.seconds!r}")
        if not 0 <= self.gap <= 1:
            raise ValueError(f"gap: expected a fraction between 0 and 1, got {self.gap!r}")
        if self.solver not in SOLVERS:
            raise ValueError(f"solver: expected one of {', '.join(SOLVERS)}, got {self.solver!r}")
        if self.engine is not None:
            if self.engine not in ENGINES:
                raise ValueError(f"engine: expected one of {', '.join(ENGINES)}, got {self.engine!r}")
            if self.solver == "cp-sat":
                raise ValueError('engine: CP-SAT has none; engines solve the integer program (solver = "ilp")')
            object.__setattr__(self, "solver", "ilp")
        if self.workers is not None and not 1 <= self.workers <= MOST_WORKERS:
            raise ValueError(f"workers: expected a whole number from 1 to {MOST_WORKERS}, got {self.workers!r}")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed: expected a whole number from 0 to {2**31 - 1}, got {self.seed!r}")
        if self.deterministic and self.workers not in (None, 1):
            raise ValueError("deterministic: a deterministic search has one worker; leave out workers")
