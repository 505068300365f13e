"""The answer of a solve, and what its steps did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ppopt.bounds import Objective
from ppopt.constraints import Word
from ppopt.named import Row
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule

if TYPE_CHECKING:
    from ppopt.solvers.repetition import Periodic

Reason: TypeAlias = Literal["optimal", "feasible", "infeasible", "no-solution"]
Limit: TypeAlias = Literal["time", "gap", "interrupted"]
Progress: TypeAlias = Callable[[int | None, int], None]


class Step(NamedTuple):
    """What one step of the strategy did."""

    name: str
    seconds: float
    outcome: str


@dataclass(frozen=True)
class Result:
    """The answer to a solve, for ``pipeline``'s placement and chunks.

    ``reason`` is what is true, ``limit`` why the search stopped before a proof (``None``: it did not). ``value`` and
    ``lower_bound`` are ticks of the objective; ``proved_by`` is the argument that gave the bound.
    """

    pipeline: Pipeline
    objective: Objective
    schedule: Schedule | None
    reason: Reason
    limit: Limit | None
    value: int | None
    lower_bound: int
    proved_by: str | None
    seconds: float
    seed: int
    versions: Mapping[str, str]
    named: tuple[Row, ...]
    steps: tuple[Step, ...]
    binding: tuple[Word, ...] = ()
    """The words that bound beside the rules: those of a named order, those of the user's own, and what these leave open."""
    constraints: tuple[Word, ...] = ()
    """The user's own among them."""
    periodic: Periodic | None = None
    """What repetition has found, for :func:`solve` with other numbers of microbatches."""
