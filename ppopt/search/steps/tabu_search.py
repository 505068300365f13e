"""Moves along critical paths of the best schedule."""

from __future__ import annotations

from typing import Any

from ppopt import tabu
from ppopt.search.run import Run
from ppopt.search.step import Kind, Step
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
        """From the best schedule on."""
        incumbent = run.incumbent
        assert incumbent.best is not None
        limits = run.limits(seconds)
        found = tabu.improved(
            incumbent.best,
            objective=run.problem.objective,
            lower=incumbent.lower,
            limits=limits,
            seed=limits.seed + self._runs,
            progress=incumbent.report,
        )
        self._runs += 1
        if found.schedule is not None:
            incumbent.offer(found.schedule, self.name)
        return incumbent.text()
