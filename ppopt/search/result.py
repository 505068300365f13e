"""The answer of a solve, in the user's units, and what its steps did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ppopt.constraints import Word
from ppopt.named import Table
from ppopt.named.model import Model
from ppopt.pipeline import Pipeline
from ppopt.schedule import Number, Objective, Schedule
from ppopt.search.step import Taken
from ppopt.timing.figures import Figures

if TYPE_CHECKING:
    from ppopt.periodic import PeriodicSchedule
    from ppopt.search.binding import Binding

Reason: TypeAlias = Literal["optimal", "feasible", "infeasible", "no-solution"]
Limit: TypeAlias = Literal["time", "gap", "interrupted"]
Progress: TypeAlias = Callable[[Number | None, Number], None]
"""Called with the best value and the lower bound, in the user's unit, whenever one improves; from any thread."""


class Ticks(NamedTuple):
    """The times of a result as whole numbers: ``ticks = time * per_unit``. ``None``: there is no schedule."""

    per_unit: int
    value: int | None
    lower_bound: int
    makespan: int | None
    device_span: int | None

    @classmethod
    def of(cls, pipeline: Pipeline, objective: Objective, schedule: Schedule | None, lower_bound: int) -> Ticks:
        """Those of a schedule of ``pipeline`` and a lower bound of the objective."""
        per_unit = pipeline.ticks.per_unit
        if schedule is None:
            return cls(per_unit, None, lower_bound, None, None)
        return cls(per_unit, schedule.objective(objective), lower_bound, schedule.makespan, schedule.device_span)

    def bounded(self, bound: Fraction) -> Ticks:
        """With a lower bound in the user's unit, in ticks as much finer as it needs to be a whole number of them."""
        finer = (bound * self.per_unit).denominator
        value, makespan, span = (
            None if ticks is None else ticks * finer for ticks in (self.value, self.makespan, self.device_span)
        )
        return Ticks(self.per_unit * finer, value, int(bound * self.per_unit * finer), makespan, span)


class Scope(NamedTuple):
    """What was left open, and so what a lower bound holds over."""

    placements: tuple[str, ...]
    """Of linear, loop, wave, bidirectional (or routes): those that were solved."""
    chunks: tuple[int, ...]
    """The numbers of chunks per device among them."""
    recompute: str | tuple[Any, ...]
    """``"choose"``, or what was settled."""
    partition: str | tuple[int, ...] | None = None
    """``"best"``, or what was settled; ``None``: there are no layers."""


class Unrestricted(NamedTuple):
    """What is known of the same question without the restriction of a runtime, in the user's unit."""

    value: Number | None
    """The best value; ``None``: no schedule is known."""
    lower_bound: Number


class RunBy(NamedTuple):
    """The runtime to which a search was kept."""

    name: str
    unrestricted: Unrestricted | None
    """``None``: it restricts nothing."""

    @property
    def tree(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"name": self.name, "unrestricted": None if self.unrestricted is None else self.unrestricted._asdict()}


@dataclass(frozen=True, repr=False)
class Result(Figures):
    """The answer to a solve. Times and memory are in the user's units: integers where whole, else the nearest doubles.

    ``reason`` is what is true, ``limit`` why the search stopped before a proof (``None``: it did not). :attr:`value` is the
    objective of ``schedule``; no schedule within the ``scope`` has less than :attr:`lower_bound`, and ``proved_by`` names the
    argument that shows it. ``model`` is that of the answer: nothing is left open in it. Where something was, ``scope`` says what,
    and ``placements`` has the result of each placement and number of chunks. ``points`` has the result for each number of
    microbatches, where several were asked for; the result itself is then that of the largest. ``best_cut`` is the result over all
    cuts of the same layers, where it was looked for beside a cut that is settled.
    """

    model: Model
    objective: Objective
    schedule: Schedule | None
    reason: Reason
    limit: Limit | None
    ticks: Ticks
    proved_by: str | None
    seconds: float
    seed: int
    versions: Mapping[str, str]
    named: Table
    """The named schedules, and the user's own, on the same devices."""
    steps: tuple[Taken, ...]
    binding: tuple[Word, ...] = ()
    """The words that bound beside the rules: those of a named order, those of the user's own, and what these leave open."""
    constraints: tuple[Word, ...] = ()
    """The user's own among them."""
    order: Binding | None = None
    """The named schedule whose constraints bound."""
    periodic: PeriodicSchedule | None = None
    """What modulo scheduling has found, to begin with for other numbers of microbatches."""
    scope: Scope | None = None
    placements: tuple[Result, ...] = ()
    points: tuple[Result, ...] = ()
    best_cut: Result | None = None
    untried: tuple[str, ...] = ()
    """What might have something better and was not begun, in words: the search was interrupted, or its time was over."""
    runtime: RunBy | None = None
    """The runtime that the answer is for; then the scope is what it can run of what was open."""

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of the answer."""
        return self.model.pipeline

    @property
    def value(self) -> Number | None:
        """The objective of the schedule; ``None`` where there is none."""
        return None if self.ticks.value is None else self.pipeline.time(self.ticks.value)

    @property
    def lower_bound(self) -> Number:
        """No schedule within the scope takes less."""
        return self.pipeline.time(self.ticks.lower_bound)

    @property
    def gap(self) -> float | None:
        """``(value - lower_bound) / value``, a fraction; ``None`` without a schedule."""
        value = self.ticks.value
        return None if value is None else (value - self.ticks.lower_bound) / value if value else 0.0

    @property
    def idle_gap(self) -> float | None:
        """``(value - lower_bound) / (value - max_d work_d)``: how much of the idle time might be avoidable; 0 where none is."""
        if self.schedule is None or self.ticks.value is None:
            return None
        idle = self.ticks.value - max(self.schedule.work)
        return (self.ticks.value - self.ticks.lower_bound) / idle if idle else 0.0

    @property
    def interrupted(self) -> bool:
        """Whether the search was interrupted, on the cut itself or beside it."""
        return "interrupted" in (self.limit, None if self.best_cut is None else self.best_cut.limit)

    def __str__(self) -> str:
        from ppopt.search.summary import summary

        return summary(self)

    def __repr__(self) -> str:
        from ppopt.search.summary import answer, title

        return f"<Result: {title(self)}; {answer(self)[0]}>"
