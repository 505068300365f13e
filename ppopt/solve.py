"""The strategy: baselines, then bounds, then a solver from the best of them; each step only where the gap is still open."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ppopt import bounds
from ppopt.bounds import Bound, Objective
from ppopt.bounds.late import beside_span
from ppopt.bounds.throughput import throughput
from ppopt.check import violations
from ppopt.constraints import (
    Precede,
    Together,
    Word,
    chain,
    chosen,
    cuts_of,
    free_choices,
    operations,
    rules_of,
)
from ppopt.named import Row, compare, find
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule, halves
from ppopt.solvers.interrupt import check, noting, uninterrupted
from ppopt.timing import Stuck, each_baseline, list_schedule, order_of, time_order
from ppopt.timing.greedy import PRIORITIES
from ppopt.timing.paths import shortest_spans

if TYPE_CHECKING:
    from ppopt.solvers.repetition import Periodic
    from ppopt.solvers.verify import Opinion

Reason = Literal["optimal", "feasible", "infeasible", "no-solution"]
Limit = Literal["time", "gap", "interrupted"]
Progress = Callable[[int | None, int], None]

SOLVERS = ("auto", "cp-sat", "ilp")
FINE = 1000
"""Operations of more ticks than this are first scheduled on a coarser grid."""
COARSE = 200
"""Ticks of the longest operation there."""
SMALL_GRAPH, LARGE_GRAPH = 30_000, 4_000_000
"""States up to which the event graph is built, before any search and after a first one."""
STATES = 50_000
"""States of the event graph that are built in a second, about; a deterministic limit of so many takes its place."""
LARGE = 5000
"""Pipelines of more operations (three per stage and microbatch) than this are searched by repetition alone."""
LISTED = 2e-5
"""Deterministic seconds for an operation of a list schedule; about what it takes."""
MANY = 1000
"""Where there are more, schedules are improved before decisions are asked for, which take long."""


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
    """The words that bound beside the rules."""
    periodic: Periodic | None = None
    """What repetition has found, for :func:`solve` with other numbers of microbatches."""


def solve(
    pipeline: Pipeline,
    *,
    objective: Objective = "makespan",
    solver: str = "auto",
    order: str | None = None,
    params: Mapping[str, Any] | None = None,
    free: Collection[Kind] = (),
    chunks: Sequence[int] = (),
    named_params: Mapping[str, Mapping[str, Any]] | None = None,
    own: Sequence[Row] = (),
    time_limit: float = 60.0,
    gap: float = 0.0,
    workers: int | None = None,
    seed: int = 0,
    deterministic: bool = False,
    progress: Progress | None = None,
    start: Schedule | None = None,
    lower_bound: int = 0,
    enough: int | None = None,
    periodic: Periodic | None = None,
) -> Result:
    """The best schedule of ``pipeline`` that can be found in ``time_limit`` seconds, and what is proved about it.

    Starts are whole ticks, in what is found and in what is proved; that matters for the device span alone, which might
    otherwise be less than one tick smaller where routes cross.

    ``order`` makes the constraints of a named schedule (with ``params``) binding, on its own placement; ``free`` sets some
    kinds free again (:func:`ppopt.solvers.binding.binding`). ``solver``: ``"ilp"`` leaves what baselines and bounds in closed
    form do not settle to the integer program. ``gap``: stop once ``(value - lower bound) / value`` is at most this.
    ``deterministic``: one worker, and the time limit in deterministic seconds of the solver, so that the same call gives the
    same answer.

    ``start`` is a schedule of this pipeline to begin with, ``lower_bound`` a bound (ticks of the objective) that is known to
    hold; both only save work. ``enough``: only values below so many ticks are of interest; a bound that reaches it ends the
    search. ``chunks`` and ``named_params`` are for the named schedules shown beside (:func:`ppopt.named.compare`). ``own``: rows
    of the user's own, shown before them and, like them, begun from where they have this placement; those for another number of
    microbatches are left out. ``progress`` is called with
    the best value and the bound whenever one improves, from any thread. Ctrl-C ends the search and keeps its best.
    ``periodic`` is what a result for other numbers of microbatches has (:attr:`Result.periodic`), to begin repetition with.

    Raises:
        ValueError: an unknown objective, solver or schedule, or a limit out of range.
        Restriction: ``order`` is not defined for this pipeline.
        TooLarge: the pipeline is too large for the ILP.
    """
    if objective not in ("makespan", "span"):
        raise ValueError(f'objective: expected "makespan" or "span", got {objective!r}')
    if solver not in SOLVERS:
        raise ValueError(f"solver: expected one of {', '.join(SOLVERS)}, got {solver!r}")
    if not time_limit > 0:
        raise ValueError(f"time_limit: expected seconds > 0, got {time_limit!r}")
    if not 0 <= gap <= 1:
        raise ValueError(f"gap: expected a fraction between 0 and 1, got {gap!r}")
    if workers is not None and not workers >= 1:
        raise ValueError(f"workers: expected a whole number >= 1, got {workers!r}")
    extra: tuple[Word, ...] = ()
    if order is not None:
        from ppopt.solvers.binding import binding

        definition = find(order)
        pipeline = definition.place(pipeline, **(params or {}))
        extra = binding(pipeline, definition.words(pipeline, **(params or {})), free)
        start = None if free else time_order(pipeline, definition.order(pipeline, **(params or {})))
    search = _Search(
        pipeline,
        objective,
        extra,
        time_limit,
        gap,
        workers=workers,
        seed=seed,
        deterministic=deterministic,
        progress=progress,
        enough=enough,
        periodic=periodic,
    )
    if start is not None:
        known = start if start.pipeline == pipeline else time_order(pipeline, start.order)
        if known.within_memory and (search.pairs or not known.order.paired):
            search.found(known, "start")
    mine = [row for row in own if row.schedule is None or row.schedule.pipeline.microbatches == pipeline.microbatches]
    if lower_bound:
        search.prove(lower_bound, "a bound that was given")
    try:
        with noting():
            search.run(solver, lambda: [*mine, *compare(pipeline, chunks, named_params or {})])
    except KeyboardInterrupt:
        search.interrupted = True
    return search.result()


def verify(
    result: Result, *, time_limit: float = 60.0, workers: int | None = None, seed: int = 0, deterministic: bool = False
) -> Opinion:
    """Show by another route that nothing is better than ``result.lower_bound``, or that nothing exists at all."""
    from ppopt.solvers.outcome import Limits
    from ppopt.solvers.verify import second_opinion

    pipeline, objective, bound = result.pipeline, result.objective, result.lower_bound
    if result.reason == "infeasible":
        objective, bound = "makespan", horizon(pipeline) + 1
    until = bound - 1 if objective == "makespan" else span_horizon(pipeline, bound - 1, free=not result.binding)
    limits = Limits(time_limit, workers=workers, seed=seed, deterministic=deterministic)
    return second_opinion(
        pipeline,
        result.binding,
        objective=objective,
        bound=bound,
        proved_by=result.proved_by,
        horizon=until,
        limits=limits,
    )


def model_text(result: Result, solver: str = "auto") -> str:
    """The model that a plain minimisation would be given, within the best value that is known, as text.

    For OR-Tools, or an integer program where ``solver`` is ``"ilp"`` (:func:`ppopt.solvers.export.model_text`).

    Raises:
        TooLarge: the pipeline is too large for the ILP.
    """
    from ppopt.solvers.export import model_text as text_of

    pipeline, objective = result.pipeline, result.objective
    upper = horizon(pipeline) if result.value is None else result.value
    return text_of(
        pipeline,
        _words(pipeline, result.binding),
        solver="ilp" if solver == "ilp" else "cp-sat",
        objective=objective,
        lower=0,
        upper=upper,
        horizon=upper if objective == "makespan" else span_horizon(pipeline, upper, free=not result.binding),
    )


def _words(pipeline: Pipeline, extra: tuple[Word, ...]) -> tuple[Word, ...]:
    """The rules, what binds beside them or else may be chosen, and what may be added because it keeps the optimum."""
    return (*rules_of(pipeline), *(extra or free_choices(pipeline)), *cuts_of(pipeline, extra))


@dataclass
class _Search:
    """The state of one solve: the best schedule, the best bound, and what was done."""

    pipeline: Pipeline
    objective: Objective
    extra: tuple[Word, ...]
    time_limit: float
    gap: float
    workers: int | None
    seed: int
    deterministic: bool
    progress: Progress | None
    enough: int | None = None
    best: Schedule | None = None
    lower: int = 0
    proved_by: str | None = None
    source: str = ""
    infeasible: bool = False
    interrupted: bool = False
    named: tuple[Row, ...] = ()
    periodic: Periodic | None = None
    """What repetition has found, to begin with when it goes on."""
    steps: list[Step] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)
    spent: float = 0.0
    """Seconds that the solver has counted (deterministic ones in deterministic mode)."""

    # --- the steps ---

    def run(self, solver: str, rows: Callable[[], Sequence[Row]]) -> None:
        """Take one step after the other until the gap is closed or the time is up."""
        self._closed_form("work", bounds.work)  # takes no time, so that even an early interrupt has a bound
        early = self.large and solver != "ilp"
        if early:  # timing all named schedules may take longer than finding a better one
            self._bounds()
            self._few_states()
            if self.open:
                self._repetition(self.time_limit / 10)
        with self.step("named schedules") as done:
            self.named = tuple(rows())
            done(self._named())
        if self.extra and self._pinned():
            return
        if not early:
            self._bounds()
            if solver != "ilp":
                self._few_states()
        if self.apart and not self.large:
            with self.step("list scheduling") as done:
                done(self._greedy())
        if self.open and solver == "ilp":
            self._program()
        elif self.open:
            self._solver()

    def _bounds(self) -> None:
        for name, bound in (("one machine", bounds.machine), ("memory", bounds.memory)):
            if self.open:
                self._closed_form(name, bound)

    def _closed_form(self, name: str, bound: Callable[..., Bound | None]) -> None:
        with self.step(f"bound: {name}") as done:
            done(self._bounded(bound(self.pipeline, self.objective, pairs=self.pairs)))

    def _named(self) -> str:
        """Take the named schedules of this placement, where nothing else binds."""
        if self.extra:
            return f"{len(self.named)} compared"
        own = [row for row in self.named if row.schedule is not None and row.schedule.pipeline.routes == self.pipeline.routes]
        for row in own:
            if row.schedule is not None and row.schedule.within_memory:
                same = row.schedule.pipeline == self.pipeline  # then with its transfers in their order
                self.found(row.schedule if same else time_order(self.pipeline, row.schedule.order), row.name)
        return f"{len(own)} of {len(self.named)} have this placement; {self.best_text()}"

    def _pinned(self) -> bool:
        """Whether the binding constraints leave a single order; then that is the answer, if the memory limit allows it."""
        with self.step("binding order") as done:
            order = order_of(self.pipeline, self.extra) if covers(self.pipeline, self.extra) else None
            if order is None:
                done("leaves something open")
                return False
            schedule = time_order(self.pipeline, order)
            if self.objective == "span":
                schedule = shortest_spans(schedule)
            if schedule.within_memory:
                self.found(schedule, "order")
            else:
                self.infeasible = True
            done(self.best_text() if self.best else "the only order exceeds the memory limit")
            if self.objective == "span" and self.pipeline.ticks.traffic and not self.infeasible:
                return False  # a device that starts later than it could may have the smaller span
            self.lower, self.proved_by = schedule.objective(self.objective), "the binding order, which leaves nothing open"
            return True

    def _greedy(self, seconds: float = 1.0) -> str:
        """List schedules, as long as there is time left, and for so many ``seconds`` in any case."""
        before = self.best
        if not self.extra:
            begun, spare = time.monotonic(), self.left - seconds
            for name, schedule in each_baseline(self.pipeline):
                self.found(schedule, name)
                if self.large:
                    self.spent += LISTED * self.operations
                late = time.monotonic() - begun > seconds and not self.deterministic
                if (late and self.left <= 0) or (self.large and self.left <= spare) or not self.apart:
                    break
        else:
            for name in PRIORITIES:
                for patient in (False, True):
                    try:
                        words = (*rules_of(self.pipeline), *self.extra)
                        self.found(list_schedule(self.pipeline, words, name, patient=patient, reserve=False), name)
                    except Stuck:
                        continue  # this rule runs into the memory limit; others may not
        return f"{'improved: ' if self.best is not before else ''}{self.best_text()}"

    def _bounded(self, bound: Bound | None) -> str:
        if bound is None:
            return "does not apply"
        self.prove(bound.value, bound.argument)
        if bound.schedule is not None and not self.extra:
            self.found(bound.schedule, bound.argument)
        return f"{self.pipeline.time(bound.value)}: {bound.proof}"

    def _solver(self) -> None:
        """For spans the makespan first; then what suits the number of operations."""
        if self.open and self.objective == "span" and not self.extra:
            self._makespan_first(self.left * (0.8 if self.large else 0.3))
        if self.large:
            self._many_operations()
        else:
            self._few_operations()

    def _many_operations(self) -> None:
        """The event graph where it may be larger; windows and repetition in turns, for longer."""
        if self.goes_on and not self.keeps_pace:
            self._events(LARGE_GRAPH, self.left / 3, exact=False)
        if self.goes_on:
            self._windows(min(self.left, self.time_limit / 10))
        if self.goes_on and self.repeats:
            self._repetition(self.left / 6)
        if self.goes_on:
            with self.step("list scheduling") as done:
                done(self._greedy(self.left / 8))
        if self.goes_on:
            self._windows(self.left / (2 if self.keeps_pace else 3), shortest=8)
        if self.goes_on and self.repeats:
            self._repetition(self.left)
        if self.best is None:
            with self.step("list scheduling") as done:
                done(self._greedy())

    def _few_operations(self) -> None:
        """Decisions at the bound and between bound and best, for longer and longer; between the rounds, improve and minimise."""
        longest = int(self.pipeline.ticks.duration.max())
        grids = [-(-longest // COARSE), 1] if longest > FINE else [1]
        seconds = max(1.0, self.time_limit / 30)
        if self.goes_on and self.operations > MANY:
            if self.repeats and self.pipeline.microbatches > self.pipeline.devices:
                self._repetition(self.left / 5)
            self._improve(self.left / 5)

        def hard() -> None:
            self._windows(min(self.left, self.time_limit / 20))
            self._improve(self.left / 5)

        if self.open:
            self._decisions(seconds, grids[0], hard)
        if self.goes_on:
            self._windows(min(self.left, self.time_limit / 10))
        if self.goes_on and not self.keeps_pace:
            self._events(LARGE_GRAPH, self.left / 3, exact=False)
        if self.open:
            self._decisions(3 * seconds, grids[0])
        if self.goes_on and self.repeats:
            self._repetition(self.left / 4)
        seconds = max(2.0, self.time_limit / 10)
        while self.goes_on:
            for grid in grids:
                self._decisions(seconds, grid)
                if self.goes_on:
                    self._improve(2 * seconds)
                if self.goes_on:
                    self._minimise(2 * seconds, grid)
            seconds *= 2

    def _few_states(self) -> None:
        """The event graph, where it is small."""
        if self.open:
            self._events(SMALL_GRAPH, min(self.left / 4, max(1.0, self.time_limit / 30)), exact=True)

    def _events(self, most: int, seconds: float, *, exact: bool) -> None:
        """The optimum where memory is so tight that there are few states, and a bound where there are some more."""
        with self.step("bound: event graph") as done:
            if self.deterministic:
                most, seconds = min(most, math.ceil(seconds * STATES)), math.inf
            bound = throughput(
                self.pipeline,
                self.objective,
                pairs=self.pairs,
                most=most,
                seconds=seconds,
                exact=exact,
                target=None if self.best is None else self.value,
            )
            done(self._bounded(bound))

    def _makespan_first(self, seconds: float) -> None:
        """Search for the makespan, which is far easier: its schedules have good spans, and its bound is nearly one of spans."""
        inner = _Search(
            self.pipeline,
            "makespan",
            (),
            seconds,
            self.gap,
            workers=self.workers,
            seed=self.seed,
            deterministic=self.deterministic,
            progress=None,
            best=self.best,
            source=self.source,
        )
        begun = time.monotonic()
        try:
            inner._bounds()
            inner._few_states()
            if inner.open:
                inner._solver()
        finally:
            self.spent += inner.spent
            self.versions |= inner.versions
            self.infeasible = inner.infeasible
            self.steps += [Step(f"makespan: {step.name}", step.seconds, step.outcome) for step in inner.steps]
            if inner.best is not None:
                self.found(inner.best if self.large else shortest_spans(inner.best), inner.source)
            beside = beside_span(self.pipeline)
            if beside is not None:
                self.prove(inner.lower - beside, inner.proved_by or "work")
            text = f"{self.best_text()}, bound {self.pipeline.time(self.lower)} (makespan {self.pipeline.time(inner.lower)})"
            self.steps.append(Step("spans of that", time.monotonic() - begun, text))

    def _windows(self, seconds: float, shortest: int = 0) -> None:
        """Bounds that take a while: idle time that the beginning and the end of every schedule have."""
        with self.step("bound: windows") as done:
            found = bounds.best(
                self.pipeline,
                self.objective,
                target=None if self.best is None else self.value,
                pairs=self.pairs,
                time_limit=seconds,
                workers=1 if self.deterministic else self.workers or os.cpu_count() or 1,
                seed=self.seed,
                deterministic=self.deterministic,
                shortest=shortest,
            )
            done("nothing new")
            for bound in found:
                if bound.value > self.lower:
                    done(self._bounded(bound))

    def _repetition(self, seconds: float) -> None:
        """A schedule of few microbatches with a period that repeats, expanded to all of them.

        It is looked for without data-parallel traffic, which lengthens a schedule by the longest of either kind at most.
        """
        with uninterrupted():
            from ppopt.solvers import cpsat, repetition
            from ppopt.solvers.outcome import Limits

        self.versions["ortools"] = cpsat.VERSION
        ticks = self.pipeline.ticks
        traffic = int(ticks.gather.max() + ticks.scatter.max())

        def report(value: int | None, bound: int) -> None:
            self._report(None if value is None else value + traffic, bound)

        with self.step("repetition" + ", without traffic" * ticks.traffic) as done:
            outcome = repetition.solve(
                self.pipeline,
                lower_bound=max(0, self.lower - traffic),
                limits=Limits(seconds, self.gap, self.workers, self.seed, self.deterministic),
                upper=None if self.best is None else self.value,
                start=self.periodic,
                progress=report,
            )
            self.spent += outcome.spent
            self.periodic = outcome.periodic or self.periodic
            if outcome.schedule is not None:
                self.found(outcome.schedule, "repetition")
            done(self.best_text())
        self.steps += [Step(f"repetition: {step.question}", step.seconds, step.answer) for step in outcome.steps]
        if outcome.interrupted:
            raise KeyboardInterrupt

    def _improve(self, seconds: float) -> None:
        """Search around the best schedule."""
        if self.best is None or not self.goes_on or self.extra or self.pipeline.ticks.traffic:
            return
        with uninterrupted():
            from ppopt.solvers import cpsat
            from ppopt.solvers.neighbourhood import improved
            from ppopt.solvers.outcome import Limits

        self.versions["ortools"] = cpsat.VERSION
        with self.step("neighbourhoods") as done:
            outcome = improved(
                self.best,
                objective=self.objective,
                lower=self.lower,
                limits=Limits(min(seconds, self.left), self.gap, self.workers, self.seed, self.deterministic),
                progress=self._report,
            )
            self.spent += outcome.spent
            if outcome.schedule is not None:
                self.found(outcome.schedule, "neighbourhoods")
            done(self.best_text())
        if outcome.interrupted:
            raise KeyboardInterrupt

    def _decisions(self, seconds: float, grid: int, otherwise: Callable[[], None] | None = None) -> None:
        """Ask at the bound, then whether the best can be beaten at all, then by bisection.

        Where it stays open whether the best can be beaten, what there is ``otherwise`` to prove it comes before bisection.
        Far below the optimum a target is refuted at once, far above it a schedule is found at once; what lies between may not be
        decided in time. Bisection goes on where there is more room, below or above that, until there is little on either side.
        """
        if self.open and self.best is not None:
            self._ask(self.lower, seconds, grid)
        if self.open and self.best is not None and self.lower < self.value - 1:
            decided = self._ask(self.value - 1, seconds, grid)
            if otherwise is not None and not decided and self.left > 0:
                otherwise()
        undecided: list[int] = []
        while self.open and self.best is not None and self.left > 0:
            low, high = self.lower, self.value
            undecided = [target for target in undecided if low <= target < high]
            if not undecided:
                target = (low + high) // 2
            else:
                below, above = undecided[0] - low, high - undecided[-1]
                if max(below, above) <= max(1, (high - low) // 6):
                    return
                target = low + below // 2 if below > above else high - above // 2
            if not self._ask(target, seconds, grid):
                undecided = sorted([*undecided, target])

    def _ask(self, target: int, seconds: float, grid: int) -> bool:
        """Whether it could be decided if there is a schedule of at most ``target``, on the true ticks."""
        if self.left <= 0:
            return False
        with self.step(f"CP-SAT: is there one of {self.pipeline.time(target)}?{_on(grid)}") as done:
            before, found = self.value, self._cpsat(target, target, seconds, grid)
            done(self.best_text() if found else "not decided in time" if found is None else "no")
        return found is False or (found is True and self.value < before)

    def _minimise(self, seconds: float, grid: int) -> None:
        with self.step(f"CP-SAT: minimise{_on(grid)}") as done:
            upper = horizon(self.pipeline) if self.best is None else self.value
            found = self._cpsat(self.lower, upper, seconds, grid)
            if self.best is None and found is False:
                self.infeasible = True
                done("there is no schedule")
            else:
                done(f"{self.best_text()}, bound {self.pipeline.time(self.lower)}")

    def _cpsat(self, lower: int, upper: int, seconds: float, grid: int) -> bool | None:
        """Whether a schedule in ``lower..upper`` was found; ``None`` if that stayed open."""
        with uninterrupted():
            from ppopt.solvers import cpsat
            from ppopt.solvers.outcome import Limits

        self.versions["ortools"] = cpsat.VERSION
        argument = f"{cpsat.NAME} {cpsat.VERSION}"
        decision = lower == upper
        outcome = cpsat.solve(
            self.pipeline,
            self.words,
            objective=self.objective,
            lower=lower,
            upper=upper,
            horizon=self._horizon(upper),
            limits=Limits(min(seconds, self.left), self.gap, self.workers, self.seed, self.deterministic),
            hint=None if decision else self.best,
            grid=grid,
            progress=self._report,
        )
        self.spent += outcome.spent
        if outcome.schedule is not None:
            self.found(outcome.schedule, "CP-SAT")
        if outcome.lower_bound > upper:
            self.prove(upper + 1, argument)
        elif not decision:
            self.prove(outcome.lower_bound, argument)
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.schedule is not None:
            return True
        return False if outcome.lower_bound > upper else None

    def _program(self) -> None:
        """Minimise by the ILP, from the best and from the bound."""
        with uninterrupted():
            from ppopt.solvers import ilp
            from ppopt.solvers.outcome import Limits
        self.versions["pulp"] = ilp.VERSION
        with self.step("ILP: minimise") as done:
            upper = horizon(self.pipeline) if self.best is None else self.value
            outcome = ilp.solve(
                self.pipeline,
                self.words,
                objective=self.objective,
                lower=self.lower,
                upper=upper,
                horizon=self._horizon(upper),
                limits=Limits(self.left, self.gap, self.workers, self.seed),
                hint=self.best,
            )
            self.infeasible = self.best is None and outcome.lower_bound > upper
            if outcome.schedule is not None:
                self.found(outcome.schedule, ilp.NAME)
            if outcome.lower_bound > self.lower:
                self.prove(outcome.lower_bound, f"{ilp.NAME} (PuLP {ilp.VERSION})")
            done("there is no schedule" if self.infeasible else f"{self.best_text()}, bound {self.pipeline.time(self.lower)}")

    # --- what they share ---

    @property
    def words(self) -> tuple[Word, ...]:
        """The rules, what binds beside them, and what may be added because it keeps the optimum."""
        return _words(self.pipeline, self.extra)

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
        return found is not None and found.period == found.step * max(found.pattern.work)

    @property
    def pairs(self) -> bool:
        """Whether overlapped pairs may be run."""
        return not self.extra or any(isinstance(word, Together) for word in self.extra)

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
        return not self.infeasible and (self.best is None or self.value - self.lower > self.gap * self.value)

    @property
    def goes_on(self) -> bool:
        """Whether there is something left to do, and time to do it."""
        return self.open and self.left > 0

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.time_limit - (self.spent if self.deterministic else time.monotonic() - self.begun)

    def found(self, schedule: Schedule, name: str) -> None:
        """Keep a schedule if it is the best so far."""
        if self.best is None or schedule.objective(self.objective) < self.value:
            self.best, self.source = schedule, name
            self._report(None, 0)

    def prove(self, bound: int, argument: str) -> None:
        """Keep a bound if it is the best so far; above the best value it is as good as that."""
        if self.best is not None:
            bound = min(bound, self.value)
        if bound > self.lower or self.proved_by is None:
            self.lower, self.proved_by = bound, argument
            self._report(None, 0)

    def _report(self, value: int | None, bound: int) -> None:
        if self.progress is not None:
            values = [v for v in (value, None if self.best is None else self.value) if v is not None]
            self.progress(min(values, default=None), max(bound, self.lower))

    def best_text(self) -> str:
        """The best value and where it is from."""
        return "nothing found" if self.best is None else f"best {self.pipeline.time(self.value)} ({self.source})"

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
            wrong = violations(self.pipeline, self.best)
            if wrong:
                raise AssertionError(f"the schedule found breaks a rule: {wrong[0].message}")
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
            pipeline=self.pipeline,
            objective=self.objective,
            schedule=self.best,
            reason=reason,
            limit=limit,
            value=value,
            lower_bound=self.lower,
            proved_by=self.proved_by,
            seconds=time.monotonic() - self.begun,
            seed=self.seed,
            versions=self.versions,
            named=self.named,
            steps=tuple(self.steps),
            binding=self.extra,
            periodic=self.periodic,
        )

    def _horizon(self, upper: int) -> int:
        return upper if self.objective == "makespan" else span_horizon(self.pipeline, upper, free=not self.extra)


def _on(grid: int) -> str:
    return f" (on a grid of {grid} ticks)" if grid > 1 else ""


def covers(pipeline: Pipeline, words: Sequence[Word]) -> bool:
    """Whether every operation that ``words`` leave is in one of their chains, so that they can fix the order."""
    forced, free = chosen(pipeline, (*rules_of(pipeline), *words))
    if len(free):
        return False
    chained = [operations(pipeline, word.before) for word in words if isinstance(word, Precede) and word == chain(word.before)]
    first, second = halves(pipeline.index, np.concatenate(chained)) if chained else (forced[:0], forced[:0])
    return bool(np.isin(forced, np.concatenate((first, second))).all())


def horizon(pipeline: Pipeline) -> int:
    """Ticks by which some best schedule has ended: at any time something runs or is on its way."""
    duration, stages = np.maximum(pipeline.ticks.duration, 0), pipeline.stages
    pairs = int(np.maximum(pipeline.ticks.overlap, 0).sum(axis=1).max())
    per_microbatch = int(duration.sum(axis=(1, 2)).max()) + pairs + 2 * stages * int(pipeline.ticks.lag.max())
    return pipeline.microbatches * per_microbatch + int(pipeline.ticks.gather.max() + pipeline.ticks.scatter.max())


def span_horizon(pipeline: Pipeline, span: int, *, free: bool) -> int:
    """Ticks by which some schedule whose device spans are at most ``span`` has ended, if there is one at all.

    Where nothing happens for longer than the largest latency, what follows can start earlier, so between the devices' spans
    there are at most D - 1 gaps of that length, besides transfers that hold a link. With nothing but the rules (``free``) it is
    much less where :func:`~ppopt.bounds.late.beside_span` says so, and with one stage per device on one route: before a device's
    first operation all devices upstream run forwards only, at most as many as their memory holds, and these can be shifted right
    against it: device d starts at most ``sum over s < d of (T_F + latency) + (C - 1) * max T_F`` after the first.
    """
    latency = int(pipeline.ticks.latency.max())
    devices = pipeline.devices
    counts = [len(microbatches) for microbatches in pipeline.microbatches_of]
    sending = int(pipeline.ticks.sending.sum(axis=(1, 2)) @ np.array(counts))
    gather = int(pipeline.ticks.gather.max())
    general = gather + devices * span + (devices - 1) * latency + sending
    if not free or sending or gather or len(pipeline.routes) > 1:
        return general
    beside = beside_span(pipeline)
    general = general if beside is None else min(general, span + beside)
    if len(set(pipeline.routes[0])) < pipeline.stages:
        return general
    route, amounts = pipeline.routes[0], pipeline.amounts
    forward = pipeline.ticks.duration[0, Kind.F].tolist()
    most = pipeline.microbatches
    if amounts.limit is not None:
        room = [
            int(amounts.limit[d] - amounts.static[d]) // int(amounts.activation[0, s])
            for s, d in enumerate(route[:-1])
            if amounts.activation[0, s]
        ]
        most = min(most, max(room, default=most)) if len(room) == len(route) - 1 else most
    hops: int = sum(int(pipeline.ticks.latency[a, b]) for a, b in pairwise(route))
    offset: int = sum(forward[:-1]) + hops + max(0, most - 1) * max(forward[:-1], default=0)
    return min(general, offset + span)
