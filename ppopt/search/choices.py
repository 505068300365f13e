"""Placement, chunks and recompute left open: every placement with its own search, and a bound that holds for all of them.

Times on different placements are compared in the user's unit, since their ticks may differ. What one placement has reached is
told to the others: as soon as a bound shows that a placement cannot beat it, its search ends.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Protocol, TypeAlias

from ppopt.clock import Clock, bounded
from ppopt.interrupt import held
from ppopt.named import Row
from ppopt.pipeline import BEST, Pipeline
from ppopt.schedule import Objective, Schedule
from ppopt.search import strategies
from ppopt.search.closed import ClosedSearch, first_bound
from ppopt.search.problem import Problem
from ppopt.search.result import Limit, Reason, Result, Scope, Ticks
from ppopt.search.settings import Settings
from ppopt.search.step import Taken
from ppopt.search.whereabouts import at
from ppopt.text import brief, place

Time: TypeAlias = Fraction | float
"""In the user's unit; infinite where there is none."""
Report: TypeAlias = Callable[[Fraction | None, Fraction], None]


class Branch(Protocol):
    """The search on one placement, which can go on where it stopped."""

    pipeline: Pipeline

    @property
    def result(self) -> Result | None:
        """What it has shown so far; ``None``: it has not begun."""

    def floor(self, objective: Objective) -> Time:
        """A quick lower bound, in the user's unit; infinite where there is no schedule at all."""

    def go_on(self, clock: Clock, enough: Time, progress: Report | None) -> Result:
        """Search until the clock is over; only values below ``enough`` matter."""


def rows_in_time(beside: Callable[[], Sequence[Row]], pipeline: Pipeline, clock: Clock) -> tuple[Row, ...]:
    """The rows beside an answer that are made before it is looked for; of a large pipeline as many as there is time for."""
    problem = Problem(pipeline)
    large = problem.large or (problem.differing and problem.many)
    with bounded(clock.slice(strategies.NAMED * clock.left) if large else None):
        return tuple(beside())


class ClosedBranch:
    """The search for the best schedule of a pipeline that leaves nothing open (:class:`~ppopt.search.closed.ClosedSearch`)."""

    def __init__(self, search: ClosedSearch) -> None:
        self.pipeline = search.run.problem.pipeline
        self.result: Result | None = None
        self._search = search

    def floor(self, objective: Objective) -> Time:
        """As :meth:`Branch.floor`."""
        return first_bound(self.pipeline, objective)

    def begin(self, start: Schedule | None, bound: int = 0) -> None:
        """Begin with a schedule of the pipeline, and a bound in ticks that holds."""
        self._search.begin(start, bound, None)

    def go_on(self, clock: Clock, enough: Time, progress: Report | None) -> Result:
        """As :meth:`Branch.go_on`."""
        per_unit = self.pipeline.ticks.per_unit

        def report(value: int | None, bound: int) -> None:
            if progress is not None:
                progress(None if value is None else Fraction(value, per_unit), Fraction(bound, per_unit))

        ticks = math.ceil(enough * per_unit) if isinstance(enough, Fraction) else None
        self.result = self._search.go_on(clock, ticks, report)
        return self.result


class Later:
    """A search on one placement that is made when it has its turn, as that takes a while (seconds, where hundreds of microbatches
    differ). ``floor``: a lower bound that is known without it, in the user's unit."""

    def __init__(self, pipeline: Pipeline, floor: Time, make: Callable[[], Branch]) -> None:
        self.pipeline, self._floor, self._make = pipeline, floor, make
        self._made: Branch | None = None

    @property
    def result(self) -> Result | None:
        """What it has shown so far."""
        return None if self._made is None else self._made.result

    def floor(self, objective: Objective) -> Time:
        """As :meth:`Branch.floor`."""
        return self._floor

    def go_on(self, clock: Clock, enough: Time, progress: Report | None) -> Result:
        """As :meth:`Branch.go_on`."""
        if self._made is None:
            with held() as came:  # what others have found is kept
                self._made = self._make()
            if came:
                clock.interrupt()
        return self._made.go_on(clock, enough, progress)


def solve_branches(
    branches: Sequence[Branch],
    objective: Objective,
    settings: Settings,
    progress: Report | None = None,
    enough: Time = math.inf,
    clock: Clock | None = None,
    promise: Callable[[Branch, Time], Time] | None = None,
) -> tuple[Result, ...]:
    """The result of each branch, as far as it matters which of them has the best of all; those not begun are left out.

    Only values below ``enough`` matter. The time is for all together: each in turn gets an equal share of half of what is left,
    the most promising first, and what is still open goes on from where it was: what the last one reaches may end the others. All
    that is left is shared where half of it is little, and by integer programs, which begin anew. In deterministic mode each has
    an equal share of the limit, once. Once a value is known no turn begins when the time is over, or when less is left than
    others have taken beyond their share, stage by stage: some of what a turn takes cannot be cut short. Where the partition is
    open, too, those of few stages come first: they are settled in seconds, and what they reach is out of reach for many cuts of
    the others. ``clock``: one that has the time of the settings left, not a new one. ``promise``: of a branch and what is
    quickly known of it, less for one that is to begin sooner; by default what is known.
    """
    clock = clock or settings.limits().clock
    if len(branches) == 1:
        return (branches[0].go_on(clock, enough, progress),)
    floors = [branch.floor(objective) for branch in branches]
    turns = _Turns(
        branches, floors, settings.deterministic, enough, floors if promise is None else list(map(promise, branches, floors))
    )
    least = strategies.PLACEMENT * settings.seconds
    while opened := turns.in_order(clock):
        if clock.left < least and all(branches[i].result is not None for i in opened):
            break
        behind = clock.left / 2 if len(opened) > 1 and clock.left / 2 > len(opened) * least and settings.solver != "ilp" else 0.0
        for turn, i in enumerate(opened):
            if turns.is_open(i) and not turns.too_late(i, clock):
                share = max(least, (clock.left - behind) / (len(opened) - turn))
                share = settings.seconds / len(branches) if settings.deterministic else share
                own = Clock(share, deterministic=settings.deterministic)  # a placement that comes late has its share, too
                with at(f"[{i + 1}/{len(branches)}] {brief(branches[i].pipeline)}"):
                    result = branches[i].go_on(own, turns.reached(), turns.reporting(i, progress))
                clock.charge(own.spent)
                turns.beyond = max(turns.beyond, (own.spent - share) / branches[i].pipeline.stages)
                if result.limit == "interrupted":
                    return turns.begun()
    return turns.begun()


class _Turns:
    """Which placement is worth going on with."""

    def __init__(
        self, branches: Sequence[Branch], floor: Sequence[Time], once: bool, enough: Time, promise: Sequence[Time]
    ) -> None:
        self.branches, self.floor, self.once, self.enough, self.promise = branches, floor, once, enough, promise
        self.beyond = 0.0
        """The most seconds that one has taken beyond its share, for each of its stages."""

    def known(self, i: int) -> Time:
        """The bound of a placement."""
        result = self.branches[i].result
        return self.floor[i] if result is None else bound_of(result)

    @property
    def all_begun(self) -> bool:
        """Whether each placement had a turn."""
        return all(branch.result is not None for branch in self.branches)

    def in_order(self, clock: Clock) -> list[int]:
        """The placements that are open and not too late, in the order of their turns."""
        pipelines = [branch.pipeline for branch in self.branches]
        few_first = not self.all_begun and all(pipeline.partition == BEST for pipeline in pipelines)

        def key(i: int) -> tuple[int, Time]:
            return pipelines[i].stages if few_first else 0, self.promise[i] if self.branches[i].result is None else self.known(i)

        return sorted((i for i in range(len(pipelines)) if self.is_open(i) and not self.too_late(i, clock)), key=key)

    def reached(self) -> Time:
        """The best value of all, or what is enough."""
        return min(self.enough, *(value_of(result) for result in self.begun()), math.inf)

    def is_open(self, i: int) -> bool:
        """Whether a placement may still have the best, and its search can go on."""
        result = self.branches[i].result
        if result is None:
            return True
        settled = self.once or result.limit in (None, "gap")
        return not settled and self.known(i) < self.reached()

    def too_late(self, i: int, clock: Clock) -> bool:
        """Whether one has begun and a value, or what is enough, is known, and the time is over, or less is left than turns have
        taken beyond their share."""
        late = clock.left <= self.beyond * self.branches[i].pipeline.stages
        return late and not self.once and self.reached() < math.inf and bool(self.begun())

    def begun(self) -> tuple[Result, ...]:
        """What the placements have shown whose search has begun."""
        return tuple(branch.result for branch in self.branches if branch.result is not None)

    def reporting(self, i: int, progress: Report | None) -> Report | None:
        """What to report of the search on one placement: the best and the bound of all."""
        if progress is None:
            return None

        def report(value: Fraction | None, bound: Fraction) -> None:
            best = min(self.reached(), math.inf if value is None else value)
            others = min((self.known(k) for k in range(len(self.branches)) if k != i), default=math.inf)
            least = min(max(bound, self.known(i)), others, best)
            progress(best if isinstance(best, Fraction) else None, least if isinstance(least, Fraction) else bound)

        return report


def combined(pipeline: Pipeline, results: Sequence[Result], branches: Sequence[Branch], settings: Settings) -> Result:
    """One result for a ``pipeline`` that leaves something open, from those of its ``branches``: its bound holds for all."""
    best = min(results, key=lambda result: (value_of(result), result.reason != "optimal"))
    value, per_unit = value_of(best), best.pipeline.ticks.per_unit
    least = min(results, key=bound_of)
    lower = bound_of(least) if len(results) == len(branches) else min(bound_of(least), *_floors(branches, best.objective))
    infeasible = all(result.reason == "infeasible" for result in results) and len(results) == len(branches)
    reason: Reason = "infeasible" if infeasible else "no-solution"
    if value < math.inf:
        reason = "optimal" if lower >= value else "feasible"
    limit: Limit | None = None
    if reason in ("feasible", "no-solution"):
        within = value < math.inf and value - lower <= settings.gap * value
        limit = "interrupted" if any(result.limit == "interrupted" for result in results) else "gap" if within else "time"
    ticks = math.floor(min(lower, value) * per_unit) if min(lower, value) < math.inf else best.ticks.lower_bound
    proof = best.proved_by if reason == "optimal" and best.reason == "optimal" else least.proved_by
    return dataclasses.replace(
        best,
        reason=reason,
        limit=limit,
        ticks=Ticks.of(best.pipeline, best.objective, best.schedule, ticks),
        proved_by=proof,
        seconds=sum(result.seconds for result in results),
        versions={name: version for result in results for name, version in result.versions.items()},
        named=next((result.named for result in results if result.named), best.named),
        steps=tuple(_placed_steps(results)) if len(results) > 1 else best.steps,
        scope=Scope(
            tuple(dict.fromkeys(branch.pipeline.placement for branch in branches)),
            tuple(sorted({branch.pipeline.chunks for branch in branches})),
            pipeline.recompute,
            None if pipeline.layers is None else pipeline.partition,
        ),
        placements=tuple(results),
        untried=tuple(
            brief(branch.pipeline) for branch in branches if branch.result is None and branch.floor(best.objective) < value
        ),
    )


def value_of(result: Result) -> Time:
    """The value of a result."""
    return math.inf if result.ticks.value is None else Fraction(result.ticks.value, result.ticks.per_unit)


def bound_of(result: Result) -> Time:
    """The lower bound of a result."""
    return math.inf if result.reason == "infeasible" else Fraction(result.ticks.lower_bound, result.ticks.per_unit)


def _floors(branches: Sequence[Branch], objective: Objective) -> list[Time]:
    return [branch.floor(objective) for branch in branches if branch.result is None]


def _placed_steps(results: Sequence[Result]) -> list[Taken]:
    """The steps of all placements, each with the name of its placement."""
    return [step._replace(name=f"{place(result.pipeline)}: {step.name}") for result in results for step in result.steps]
