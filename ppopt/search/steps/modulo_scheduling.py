"""Modulo scheduling: a kernel that is repeated, with a prologue and an epilogue, expanded to all microbatches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppopt import cpsat, periodic
from ppopt.schedule import Schedule
from ppopt.search import tuning
from ppopt.search.run import Run
from ppopt.search.step import DIFFERENT, SCATTERED, Kind, Step, Taken

if TYPE_CHECKING:
    from ppopt.periodic import Grown, PeriodicSchedule


class ModuloScheduling(Step):
    """It leaves out what devices do before and after their operations, which adds no more than the longest of each."""

    name = "modulo scheduling"
    kind = Kind.IMPROVE

    def __init__(self) -> None:
        self.best: PeriodicSchedule | None = None
        """The best that was found."""
        self.least_unrolled: PeriodicSchedule | None = None
        """Of those with the least time per microbatch, the one with the smallest unroll factor."""
        self._grown: Grown = {}

    @property
    def full_speed(self) -> bool:
        """Whether a schedule is known in whose kernel the busiest device never idles."""
        best = self.best
        return best is not None and best.period == best.unroll * max(best.graph.work_per_microbatch)

    def applies(self, run: Run) -> str | None:
        """Where nothing tells the microbatches apart."""
        if run.problem.pipeline.backward_routes:
            return SCATTERED
        if run.problem.pipeline.ticks.pauses:
            return "it knows nothing of what is exchanged between passes"
        if run.problem.span:
            return "periodic schedules are sought for the makespan alone"
        if run.problem.differing:
            return DIFFERENT
        return "what binds may tell microbatches apart" if run.problem.words else None

    def run(self, run: Run, seconds: float, *, example: Schedule | None = None, **options: Any) -> str:
        """Go on from what was found; ``example``: a schedule whose kernel may be a good one."""
        incumbent, ticks = run.incumbent, run.problem.pipeline.ticks
        run.versions["ortools"] = cpsat.VERSION
        margins = int(ticks.lead.max() + ticks.tail.max())

        def report(value: int | None, bound: int) -> None:
            incumbent.report(None if value is None else value + margins, bound)

        outcome = periodic.solve(
            run.problem.pipeline,
            lower_bound=max(0, incumbent.lower - margins),
            limits=run.limits(seconds),
            tuning=tuning.MODULO,
            upper=incumbent.target,
            known=periodic.Found(self.best, self.least_unrolled),
            example=example or incumbent.best,
            progress=report,
            grown=self._grown,
        )
        self.best = outcome.found.best or self.best
        self.least_unrolled = outcome.found.least_unrolled or self.least_unrolled
        if outcome.schedule is not None:
            incumbent.offer(outcome.schedule, self.name)
        run.taken += [Taken(f"{self.name}: {asked.question}", asked.seconds, asked.answer) for asked in outcome.asked]
        return incumbent.text() + ", sought without what devices do before and after" * ticks.margins
