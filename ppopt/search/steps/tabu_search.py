"""Moves along critical paths of the best schedule."""

from __future__ import annotations

from typing import Any

from ppopt import tabu
from ppopt.schedule import Schedule
from ppopt.search.run import Run
from ppopt.search.step import Kind, Step
from ppopt.search.steps.list_schedules import ListSchedules, PacedSchedules
from ppopt.search.steps.neighbourhoods import not_for_windows


class TabuSearch(Step):
    """Tabu search: thousands of small changes a second, where a window of a neighbourhood takes a part of a second."""

    name = "tabu search"
    kind = Kind.IMPROVE

    def __init__(self) -> None:
        self._search: tabu.Search | None = None
        self._found: Schedule | None = None
        """The best schedule when it was last taken."""

    @property
    def over(self) -> bool:
        """Whether the last search came to an end: enough walks in a row found nothing better."""
        return self._search is not None and self._search.over

    def applies(self, run: Run) -> str | None:
        """Where there is a schedule, and an order and its waits say all."""
        problem = run.problem
        unknown = not_for_windows(problem.pipeline, problem.objective, problem.words) or tabu.unknown(problem.pipeline)
        return unknown or ("there is no schedule yet" if run.incumbent.best is None else None)

    def run(self, run: Run, seconds: float, **options: Any) -> str:
        """From the best schedule on, the first time from the best list schedules, too; later from where it stopped.

        Of many operations no more than the best few list schedules are taken, for each takes its part of the time. Measured, with
        twice as many: 12 devices of two chunks, 32 microbatches get up to 0.7 % longer in 8 s; 7 of four chunks, 8 microbatches
        up to 1.9 % shorter in 40 s.
        """
        problem, incumbent, limits = run.problem, run.incumbent, run.limits(seconds)
        best = incumbent.best
        assert best is not None
        if best is not self._found and not (self._search and self._search.begin_at(best)):
            first, self._search = self._search is None, tabu.Search(best, problem.objective, limits.seed)
            if first:
                most = tabu.HABITS.starts if problem.many else None
                others = [each for each in (*run.step(ListSchedules).best, *run.step(PacedSchedules).best) if each is not best]
                for other in sorted(others, key=lambda each: each.objective(problem.objective))[:most]:
                    self._search.begin_at(other)
        assert self._search is not None
        than = best.objective(problem.objective)
        found = self._search.improved(than, incumbent.lower, limits, incumbent.report)
        if found.schedule is not None:
            incumbent.offer(found.schedule, self.name)
        self._found = incumbent.best
        return incumbent.text()
