"""The state of one solve, which its steps share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ppopt.bounds import Objective
from ppopt.bounds.ladder import Lengths, Trial
from ppopt.checker import violations
from ppopt.clock import Clock, Limits
from ppopt.constraints import Pairable, Together, Word, cuts_of, free_choices, rules_of, select
from ppopt.interrupt import check
from ppopt.named import Row, Table
from ppopt.named.model import Model
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.search.horizons import ended_by
from ppopt.search.result import Limit, Reason, Result, Step, Ticks
from ppopt.timing import CyclicOrder, broken, time_order

if TYPE_CHECKING:
    from ppopt.periodic import Periodic

LARGE = 5000
"""Pipelines of more operations (three per stage and microbatch) than this are searched by repetition alone."""


def words_of(pipeline: Pipeline, extra: tuple[Word, ...]) -> tuple[Word, ...]:
    """The rules, what binds beside them or else may be chosen, and what may be added because it keeps the optimum."""
    return (*rules_of(pipeline), *(extra or free_choices(pipeline)), *cuts_of(pipeline, extra))


def check_found(schedule: Schedule, words: tuple[Word, ...]) -> None:
    """Raise where a schedule that was found violates a rule, or breaks one of the ``words`` that bind: a mistake of the program.

    Raises:
        AssertionError: it does.
    """
    wrong = violations(schedule.pipeline, schedule)
    if wrong:
        raise AssertionError(f"the schedule found breaks a rule: {wrong[0].message}")
    unlike = broken(schedule, words) if words else []
    if unlike:
        raise AssertionError(f"the schedule found breaks a constraint: {unlike[0]}")


@dataclass
class Search:
    """The best schedule, the best bound, and what was done. The steps are functions of it."""

    pipeline: Pipeline
    objective: Objective
    extra: tuple[Word, ...]
    whole: Limits
    """Of all steps together."""
    progress: Callable[[int | None, int], None] | None
    """Called with the best value and the bound, in ticks, whenever one improves."""
    enough: int | None = None
    best: Schedule | None = None
    lower: int = 0
    proved_by: str | None = None
    source: str = ""
    infeasible: bool = False
    interrupted: bool = False
    named: tuple[Row, ...] = ()
    periodic: Periodic | None = None
    base: Periodic | None = None
    """What repetition has found, to begin with when it goes on: the best, and of the shortest period the smallest."""
    listed: Iterator[tuple[str, Schedule]] | None = None
    """List schedules by one rule after the other, to go on with."""
    paced: Iterator[tuple[str, Schedule]] | None = None
    """List schedules at one pace after the other, to go on with."""
    windows: dict[Lengths, Trial] = field(default_factory=dict)
    """Seconds that were spent on windows, without end where they have proved all they can, and below which value."""
    steps: list[Step] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)

    @property
    def words(self) -> tuple[Word, ...]:
        """The rules, what binds beside them, and what may be added because it keeps the optimum."""
        return words_of(self.pipeline, self.extra)

    @property
    def repeats(self) -> bool:
        """Whether a schedule with a period is worth looking for: nothing tells the microbatches apart."""
        return self.objective == "makespan" and not self.extra

    @property
    def operations(self) -> int:
        """How many there are, three per stage and microbatch."""
        return 3 * self.pipeline.stages * self.pipeline.microbatches

    @property
    def large(self) -> bool:
        """Whether it is left to repetition: too many operations for a model of them all."""
        return not self.extra and self.operations > LARGE

    @property
    def keeps_pace(self) -> bool:
        """Whether a schedule is known in whose middle the busiest device never idles: only beginning and end can be shorter."""
        found = self.periodic
        return found is not None and found.period == found.step * max(found.graph.work_per_microbatch)

    @property
    def pairs(self) -> bool:
        """Whether overlapped pairs may be run."""
        return not self.extra or bool(select(self.extra, Together, Pairable))

    def obeying(self, schedule: Schedule) -> Schedule | None:
        """A schedule of this pipeline with its order timed under what binds; ``None``: it breaks that, or the memory limit."""
        if self.extra:
            try:
                schedule = time_order(self.pipeline, schedule.order, words=self.extra)
            except CyclicOrder:
                return None
        if not schedule.within_memory or (self.extra and broken(schedule, self.extra)):
            return None
        return schedule

    @property
    def value(self) -> int:
        """The best objective; there must be one."""
        assert self.best is not None
        return self.best.objective(self.objective)

    @property
    def open(self) -> bool:
        """Whether the gap is larger than asked for, what lies in it is of interest, and something can be done about it."""
        return self.apart and (self.enough is None or self.lower < self.enough)

    @property
    def apart(self) -> bool:
        """Whether the gap is larger than asked for, and something can be done about it."""
        return not self.infeasible and (self.best is None or self.value - self.lower > self.whole.gap * self.value)

    @property
    def goes_on(self) -> bool:
        """Whether there is something left to do, and time to do it."""
        return self.open and self.left > 0

    @property
    def clock(self) -> Clock:
        """Of all steps."""
        return self.whole.clock

    @property
    def time_limit(self) -> float:
        """Seconds that there were."""
        return self.clock.seconds

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.clock.left

    def limits(self, seconds: float) -> Limits:
        """Those of a step of at most so many seconds."""
        return self.whole.slice(seconds)

    def found(self, schedule: Schedule, name: str) -> bool:
        """Keep a schedule if it is the best so far; whether it is."""
        better = self.best is None or schedule.objective(self.objective) < self.value
        if better:
            self.best, self.source = schedule, name
            self.report(None, 0)
        return better

    def prove(self, bound: int, argument: str) -> None:
        """Keep a bound if it is the best so far; above the best value it is as good as that."""
        if self.best is not None:
            bound = min(bound, self.value)
        if bound > self.lower or self.proved_by is None:
            self.lower, self.proved_by = bound, argument
            self.report(None, 0)

    def report(self, value: int | None, bound: int) -> None:
        """Tell who wants to know, of these or what is better already."""
        if self.progress is not None:
            values = [v for v in (value, None if self.best is None else self.value) if v is not None]
            self.progress(min(values, default=None), max(bound, self.lower))

    def best_text(self) -> str:
        """The best value and where it is from."""
        return "nothing found" if self.best is None else f"best {self.pipeline.time(self.value)} ({self.source})"

    def text_since(self, before: Schedule | None) -> str:
        """The same, and whether it got better than ``before``."""
        return f"{'improved: ' if self.best is not before else ''}{self.best_text()}"

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Note what a step did, and how long it took, even if it is interrupted."""
        begun, outcome = time.monotonic(), ["interrupted"]
        try:
            yield lambda text: outcome.__setitem__(0, text)
        finally:
            self.steps.append(Step(name, time.monotonic() - begun, outcome[0]))
        check()

    def result(self) -> Result:
        """The answer, its schedule checked."""
        value = None
        if self.best is not None:
            value = self.value
            check_found(self.best, self.extra)
        reason: Reason
        limit: Limit | None = None
        if self.infeasible:
            reason = "infeasible"
        elif value is not None and value <= self.lower:
            reason = "optimal"
            self.proved_by = self.proved_by or "work"  # the bound of a pipeline whose operations take no time
        else:
            reason = "feasible" if value is not None else "no-solution"
            if self.interrupted:
                limit = "interrupted"
            elif self.open:
                limit = "time"
            elif self.enough is None or self.lower < self.enough:
                limit = "gap"
        return Result(
            model=Model(self.pipeline),
            objective=self.objective,
            schedule=self.best,
            reason=reason,
            limit=limit,
            ticks=Ticks.of(self.pipeline, self.objective, self.best, self.lower),
            proved_by=self.proved_by,
            seconds=time.monotonic() - self.begun,
            seed=self.whole.seed,
            versions=self.versions,
            named=Table(self.named, self.pipeline),
            steps=tuple(self.steps),
            binding=self.extra,
            periodic=self.periodic,
        )

    def horizon(self, upper: int) -> int:
        """Ticks by which some schedule with an objective of at most ``upper`` has ended, if there is one."""
        return ended_by(self.pipeline, self.objective, upper, self.extra)
