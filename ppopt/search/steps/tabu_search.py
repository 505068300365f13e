"""Moves along critical paths of the best schedule."""

from __future__ import annotations

from typing import Any

from ppopt import tabu
from ppopt.schedule import Schedule
from ppopt.search.run import Run
from ppopt.search.step import Kind, Step
from ppopt.search.steps.list_schedules import ListSchedules
from ppopt.search.steps.neighbourhoods import not_for_windows


class TabuSearch(Step):
    """Tabu search: thousands of small changes a second, where a window of a neighbourhood takes a part of a second."""

    name = "tabu search"
    kind = Kind.IMPROVE

    def __init__(self) -> None:
        self._runs = 0

    def applies(self, run: Run) -> str | None:
        """Where there is a schedule, and an order and its waits say all."""
        problem = run.problem
        unknown = not_for_windows(problem.pipeline, problem.objective, problem.words) or tabu.unknown(problem.pipeline)
        return unknown or ("there is no schedule yet" if run.incumbent.best is None else None)

    def run(self, run: Run, seconds: float, **options: Any) -> str:
        """From the best schedule on; the first time half of the time from the best list schedules, too."""
        clock, incumbent = run.clock.slice(seconds), run.incumbent
        assert incumbent.best is not None
        best = incumbent.best
        others = [] if self._runs else [each for each in run.step(ListSchedules).best if each is not best]
        for start in (best, *others) if others else ():
            self._search(run, start, seconds / 2 / (1 + len(others)))
        self._search(run, incumbent.best, clock.left)
        return incumbent.text()

    def _search(self, run: Run, start: Schedule, seconds: float) -> None:
        """From one schedule on."""
        incumbent, limits = run.incumbent, run.limits(seconds)
        found = tabu.improved(
            start,
            objective=run.problem.objective,
            lower=incumbent.lower,
            limits=limits,
            seed=limits.seed + self._runs,
            progress=incumbent.report,
        )
        self._runs += 1
        if found.schedule is not None:
            incumbent.offer(found.schedule, self.name)
