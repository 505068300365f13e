"""Schedules that need no solver: list scheduling by priority rules, at a pace, and the named heuristics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ppopt.clock import Clock
from ppopt.constraints import rules_of
from ppopt.heuristics import (
    PRIORITIES,
    Jobs,
    Stuck,
    by_frontier,
    each_baseline,
    each_paced,
    in_flight,
    list_scheduling,
    listable,
    run_jobs,
)
from ppopt.named import adapted
from ppopt.pipeline.rewriting import kept_here
from ppopt.schedule import Schedule
from ppopt.search import tuning
from ppopt.search.run import Run
from ppopt.search.step import Kind, Needs, Step
from ppopt.tabu import HABITS
from ppopt.timing import CyclicOrder, obeys_all, time_order


class ListSchedules(Step):
    """List schedules by one priority rule after the other, from where it stopped."""

    name = "list scheduling"
    kind = Kind.IMPROVE
    copies = True
    needs = Needs.GAP

    def __init__(self) -> None:
        self._left: Iterator[tuple[str, Schedule]] | None = None
        self._took = 0.0
        """Seconds that one takes, by the last one."""
        self.best: list[Schedule] = []
        """The best few, from which a search may begin."""

    def run(self, run: Run, seconds: float, *, least: float = 0.0, **options: Any) -> str:
        """Until one closes the gap or the time is over; for ``least`` seconds in any case, and until there is one.

        Where there is one, no more are made than there is time for: those of very many operations take seconds each.
        """
        before, incumbent = run.incumbent.best, run.incumbent
        if run.problem.words:
            self._by_priority(run)
            return incumbent.text(before)
        clock, own = run.clock.slice(seconds), Clock(least, deterministic=run.clock.deterministic)
        pipeline = run.problem.pipeline
        self._left = self._left or each_baseline(pipeline)
        cheapest = list_scheduling.SECONDS * run.problem.operations
        while incumbent.best is None or max(self._took, cheapest) < max(run.clock.left, own.left):
            begun = run.clock.spent
            name, schedule = next(self._left, ("", None))
            if schedule is None:
                break
            if schedule.within_memory:
                incumbent.offer(schedule, name)
                keep(self.best, schedule, run)
            for each in (clock, own):
                each.charge(tuning.SCHEDULED * run.problem.operations)
            self._took = run.clock.spent - begun
            if incumbent.closed or (clock.over and own.over and incumbent.best is not None):
                break
        return incumbent.text(before)

    def _by_priority(self, run: Run) -> None:
        """What each priority rule gives under the binding constraints, while there is time left.

        What the list scheduler does not know of these the times may still bring about; what breaks one is left out.
        """
        pipeline, words = run.problem.pipeline, run.problem.words
        plain = kept_here(pipeline) if pipeline.engines else pipeline
        if pipeline.backward_routes and pipeline.amounts.limit is not None:
            self._few_in_flight(run)
        jobs = Jobs(plain, listable(plain, (*rules_of(plain), *words)), links=True)
        for name, rule in PRIORITIES.items():
            for patient, reserve in ((False, False), (True, False), (False, True)):
                if run.incumbent.best is not None and run.clock.left <= list_scheduling.SECONDS * run.problem.operations:
                    return
                run.clock.charge(tuning.SCHEDULED * run.problem.operations)
                try:
                    order = run_jobs(jobs, rule(jobs), patient=patient, reserve=reserve)
                    schedule = time_order(pipeline, order, words=words)
                except (CyclicOrder, Stuck):
                    continue  # this rule runs into the memory limit, or against words between devices; others may not
                if schedule.within_memory and obeys_all(schedule, words):
                    run.incumbent.offer(schedule, name)

    def _few_in_flight(self, run: Run) -> None:
        """One microbatch after the other, then more and more of them in flight, for as long as that fits: where a forward takes
        another device's memory no priority rule sees it."""
        pipeline, words = run.problem.pipeline, run.problem.words
        for most in range(1, pipeline.microbatches + 1):
            if run.incumbent.best is not None and run.clock.over:
                return
            run.clock.charge(tuning.SCHEDULED * run.problem.operations)
            try:
                schedule = time_order(pipeline, by_frontier(pipeline, most=most), words=(*words, *in_flight(pipeline, most)))
            except CyclicOrder:
                return
            if schedule.within_memory and obeys_all(schedule, words):
                run.incumbent.offer(schedule, f"{most} in flight")


def keep(best: list[Schedule], schedule: Schedule, run: Run) -> None:
    """Keep a schedule among the best few."""
    best.append(schedule)
    best.sort(key=lambda each: each.objective(run.problem.objective))
    del best[HABITS.starts :]


class OneAfterTheOther(Step):
    """Schedules that are made one after the other, until the last ones were not better for long."""

    kind = Kind.IMPROVE

    def __init__(self) -> None:
        self._left: Iterator[tuple[str, Schedule]] | None = None
        self.best: list[Schedule] = []
        """The best few, from which a search may begin."""

    @property
    def fresh(self) -> bool:
        """Whether it has not begun."""
        return self._left is None

    def applies(self, run: Run) -> str | None:
        """Where nothing binds beside the rules."""
        return "it knows nothing of constraints that bind" if run.problem.words else None

    def make(self, run: Run) -> Iterator[tuple[str, Schedule]]:
        """The schedules, each with its name."""
        raise NotImplementedError

    def run(self, run: Run, seconds: float, **options: Any) -> str:
        """Take those that fit, while there is time for one more."""
        before, incumbent, tries = run.incumbent.best, run.incumbent, 0
        clock = run.clock.slice(seconds)
        self._left = self._left or self.make(run)
        while incumbent.best is None or run.clock.left > list_scheduling.SECONDS * run.problem.operations:
            name, schedule = next(self._left, ("", None))
            if schedule is None:
                break
            tries += 1
            if schedule.within_memory:
                keep(self.best, schedule, run)
                tries = 0 if incumbent.offer(schedule, name) else tries
            clock.charge(tuning.SCHEDULED * run.problem.operations)
            if clock.over or tries == tuning.PATIENCE or not incumbent.open:
                break
        return incumbent.text(before)


class NamedHeuristics(OneAfterTheOther):
    """The heuristics among the named schedules, at one limit of memory after the other.

    Measured: without, 4 of 42 configurations of the zero-bubble papers get up to 7 % worse than their schedulers in 3 s; the
    benchmark of proofs does as well without.
    """

    name = "named heuristics"
    copies = True

    def make(self, run: Run) -> Iterator[tuple[str, Schedule]]:
        """One after the other."""
        return adapted(run.problem.pipeline)


class PacedSchedules(OneAfterTheOther):
    """List schedules whose microbatches enter at a pace, which is searched for."""

    name = "list scheduling at a pace"

    def make(self, run: Run) -> Iterator[tuple[str, Schedule]]:
        """Without end."""
        return each_paced(run.problem.pipeline, run.problem.objective, run.seed)
