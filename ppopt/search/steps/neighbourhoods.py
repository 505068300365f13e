"""Search around the best schedule."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ppopt import cpsat
from ppopt.constraints import Word
from ppopt.pipeline import Pipeline
from ppopt.schedule import Objective
from ppopt.search import tuning
from ppopt.search.run import Run
from ppopt.search.step import Kind, Step


def not_for_windows(pipeline: Pipeline, objective: Objective, words: Collection[Word]) -> str | None:
    """Why windows of a schedule cannot be arranged anew, where ``words`` bind beside the rules; ``None``: they can."""
    if words:
        return "it knows nothing of constraints that bind"
    if pipeline.ticks.pauses:
        return "it knows nothing of what a device does between its operations"
    if pipeline.engines and objective == "span":
        return "it knows nothing of spans with copies to the host"
    return None


class Neighbourhoods(Step):
    """Large neighbourhood search, window by window."""

    name = "neighbourhoods"
    kind = Kind.IMPROVE
    copies = True

    def __init__(self) -> None:
        self._grown: cpsat.Grown | None = None

    def applies(self, run: Run) -> str | None:
        """Where there is a schedule, and nothing but the rules."""
        problem = run.problem
        unknown = not_for_windows(problem.pipeline, problem.objective, problem.words)
        return unknown or ("there is no schedule yet" if run.incumbent.best is None else None)

    def run(self, run: Run, seconds: float, **options: Any) -> str:
        """From the best schedule on."""
        run.versions["ortools"] = cpsat.VERSION
        incumbent = run.incumbent
        assert incumbent.best is not None
        self._grown = self._grown or cpsat.Grown()
        found = cpsat.improved(
            incumbent.best,
            objective=run.problem.objective,
            lower=incumbent.lower,
            limits=run.limits(seconds),
            tuning=tuning.NEIGHBOURHOODS,
            progress=incumbent.report,
            grown=self._grown,
        )
        if found.schedule is not None:
            incumbent.offer(found.schedule, self.name)
        return incumbent.text()
