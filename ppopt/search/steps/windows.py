"""Windows: idle time that the beginning and the end of every schedule have."""

from __future__ import annotations

from typing import Any

from ppopt import bounds
from ppopt.bounds.escalation import Attempt, Lengths
from ppopt.search import tuning
from ppopt.search.run import Run
from ppopt.search.step import DIFFERENT, Kind, Step
from ppopt.search.steps.closed_forms import learn


class Windows(Step):
    """Bounds that take a while; what a window was asked before, it is asked again only with more time, or for less."""

    name = "bound: windows"
    kind = Kind.BOUND
    copies = True

    def __init__(self) -> None:
        self._tried: dict[Lengths, Attempt] = {}
        """Seconds that were spent on windows, without end where they have proved all they can, and below which value."""

    def applies(self, run: Run) -> str | None:
        """Where microbatches are alike, or few: with families for each of many microbatches posing a window takes seconds.

        Measured on two pipelines of 1200 and 1440 operations whose microbatches differ: windows prove nothing in 40 s.
        """
        return DIFFERENT if run.problem.many and run.problem.differing else None

    def run(self, run: Run, seconds: float, *, shortest: int = 0, **options: Any) -> str:
        """Ask windows of growing length, those below ``shortest`` eighths of the filling time left out."""
        problem, said = run.problem, "nothing new"
        found = bounds.best(
            problem.pipeline,
            problem.objective,
            target=run.incumbent.target,
            pairs=problem.pairs,
            limits=run.limits(seconds),
            tuning=tuning.BOUNDS,
            shortest=shortest,
            tried=self._tried,
        )
        for bound in found:
            if bound.value > run.incumbent.lower:
                said = learn(run, bound)
        return said
