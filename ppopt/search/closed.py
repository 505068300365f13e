"""The best schedule of one pipeline that leaves nothing open: a strategy, from what is known already."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from ppopt import bounds
from ppopt.checker import violations
from ppopt.checker.quick import seconds_to_read
from ppopt.clock import Clock
from ppopt.constraints import Word
from ppopt.interrupt import noting
from ppopt.named import Row, Table
from ppopt.named.model import Model
from ppopt.pipeline import Pipeline
from ppopt.schedule import Objective, Schedule
from ppopt.search.incumbent import Incumbent
from ppopt.search.problem import Problem
from ppopt.search.result import Limit, Reason, Result, Ticks
from ppopt.search.run import Run
from ppopt.search.settings import Settings
from ppopt.search.steps.modulo_scheduling import ModuloScheduling
from ppopt.search.strategies import main, strategy_of
from ppopt.timing import broken, time_order
from ppopt.timing.copies import without_needless

CHECKED = 1.5
"""To time an answer and to check it takes this times what the check takes. Measured: 1.2 s and 1.7 s with 64 devices."""

if TYPE_CHECKING:
    from ppopt.periodic import PeriodicSchedule


def solve_closed(
    pipeline: Pipeline,
    objective: Objective = "makespan",
    settings: Settings | None = None,
    *,
    words: tuple[Word, ...] = (),
    beside: Callable[[], Sequence[Row]] = lambda: (),
    start: Schedule | None = None,
    lower_bound: int = 0,
    enough: int | None = None,
    periodic: PeriodicSchedule | None = None,
    progress: Callable[[int | None, int], None] | None = None,
    clock: Clock | None = None,
) -> Result:
    """The best schedule of ``pipeline`` that can be found within the ``settings``, and what is proved about it.

    ``words`` bind beside the rules. ``beside`` gives rows to show, and to begin from where they have this placement.
    What only saves work: ``start`` is a schedule of this pipeline to begin with, ``lower_bound`` a bound (ticks of the objective)
    that is known to hold, ``periodic`` what a result for other numbers of microbatches has (:attr:`Result.periodic`).
    ``enough``: only values below that many ticks are of interest; a bound that reaches it ends the search. ``progress`` is called
    with the best value and the bound, in ticks, whenever one improves, from any thread. ``clock``: a slice of another search's
    clock in place of the time in the settings. Ctrl-C ends the search and keeps its best.

    Raises:
        TooLarge: the pipeline is too large for the ILP.
    """
    settings = settings or Settings()
    problem = Problem(pipeline, objective, words, settings.gap, enough)
    search = ClosedSearch(problem, settings, beside)
    search.begin(start, lower_bound, periodic)
    return search.go_on(clock or settings.limits().clock, progress=progress)


class ClosedSearch:
    """The search on one pipeline that leaves nothing open, which can go on where it stopped."""

    def __init__(self, problem: Problem, settings: Settings, beside: Callable[[], Sequence[Row]] = lambda: ()) -> None:
        self.settings = settings
        self.run = Run(problem, Clock(0), Incumbent(problem), workers=settings.workers, seed=settings.seed, rows=beside)
        self._seconds = 0.0
        self._strategy = strategy_of(problem, settings.solver, settings.engine)

    def begin(self, start: Schedule | None, lower_bound: int, periodic: PeriodicSchedule | None) -> None:
        """Take over what is known (:func:`solve_closed`)."""
        problem, incumbent = self.run.problem, self.run.incumbent
        self.run.step(ModuloScheduling).best = periodic
        if start is not None:
            same = start.pipeline == problem.pipeline
            known = problem.obeying(start if same else time_order(problem.pipeline, start.order))
            if known is not None and (problem.pairs or not known.order.paired):
                incumbent.offer(known, "start")
        if lower_bound:
            incumbent.prove(lower_bound, "a bound that was given")

    def go_on(self, clock: Clock, enough: int | None = None, progress: Callable[[int | None, int], None] | None = None) -> Result:
        """Search until the gap is closed or the clock is over.

        ``enough`` and ``progress`` as in :func:`solve_closed`; without ``enough`` that of before.
        """
        begun = time.monotonic()
        self.run.incumbent.tell(progress)
        if enough is not None:
            self.run.ask(replace(self.run.problem, enough=enough))
        self.run.clock = self._but_checking(clock)
        try:
            with noting():
                self.run.follow(self._strategy)
        except KeyboardInterrupt:
            clock.interrupt()
        if self.settings.solver != "ilp":
            self._strategy = main(self.run.problem)  # the beginning is made
        self._seconds += time.monotonic() - begun
        return self._result()

    def _but_checking(self, clock: Clock) -> Clock:
        """The clock without what is needed behind it: to time the answer with its transfers, and to check it.

        Where that is not done in one go it takes seconds; at most half of the time is kept back. Nothing is of a deterministic
        clock, which does not count it.
        """
        rest = 0.0 if clock.deterministic else CHECKED * seconds_to_read(self.run.problem.pipeline)
        return clock.slice(clock.left - min(rest, clock.left / 2)) if rest else clock

    def _result(self) -> Result:
        """The answer, its schedule checked."""
        run, incumbent, problem = self.run, self.run.incumbent, self.run.problem
        value, best = incumbent.target, incumbent.best
        if best is not None and best.pipeline.engines:
            best = incumbent.best = without_needless(best)
        if best is not None:
            check_found(best, problem.words)
        reason: Reason
        limit: Limit | None = None
        if incumbent.infeasible:
            reason = "infeasible"
        elif value is not None and value <= incumbent.lower:
            reason = "optimal"
            incumbent.proved_by = incumbent.proved_by or "work"  # the bound of a pipeline whose operations take no time
        else:
            reason = "feasible" if value is not None else "no-solution"
            if run.clock.interrupted:
                limit = "interrupted"
            elif incumbent.open:
                limit = "time"
            elif problem.enough is None or incumbent.lower < problem.enough:
                limit = "gap"
        return Result(
            model=Model(problem.pipeline),
            objective=problem.objective,
            schedule=best,
            reason=reason,
            limit=limit,
            ticks=Ticks.of(problem.pipeline, problem.objective, best, incumbent.lower),
            proved_by=incumbent.proved_by,
            seconds=self._seconds,
            seed=run.seed,
            versions=run.versions,
            named=Table(run.named, problem.pipeline),
            steps=tuple(run.taken),
            binding=problem.words,
            periodic=run.step(ModuloScheduling).best,
        )


def quick_bound(pipeline: Pipeline, objective: Objective) -> Fraction:
    """The best bound in closed form, in the user's unit."""
    found = [of(pipeline, objective, pairs=True) for of in (bounds.work, bounds.machine, bounds.memory)]
    ticks = max((bound.value for bound in found if bound is not None), default=0)
    return Fraction(ticks, pipeline.ticks.per_unit)


def first_bound(pipeline: Pipeline, objective: Objective) -> Fraction:
    """As :func:`quick_bound`, but where many microbatches differ, of the work alone. Measured: 400 of them on 24 devices, half a
    million computations and transfers on three placements: 25 s for all bounds, before any placement is begun."""
    problem = Problem(pipeline)
    if not (problem.large and problem.differing):
        return quick_bound(pipeline, objective)
    found = bounds.work(pipeline, objective, pairs=True)
    return Fraction(0 if found is None else found.value, pipeline.ticks.per_unit)


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
