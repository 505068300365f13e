"""Repetition: a schedule of few microbatches with a period that repeats, expanded to all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppopt.interrupt import uninterrupted
from ppopt.schedule import Schedule
from ppopt.search.run import Run
from ppopt.search.step import Kind, Step, Taken

if TYPE_CHECKING:
    from ppopt.periodic import Periodic


class Repetition(Step):
    """It is looked for without data-parallel traffic, which lengthens a schedule by the longest of either kind at most."""

    name = "repetition"
    kind = Kind.IMPROVE

    def __init__(self) -> None:
        self.periodic: Periodic | None = None
        """The best that was found."""
        self.base: Periodic | None = None
        """Of the shortest period per microbatch, that with the fewest microbatches."""

    @property
    def full_speed(self) -> bool:
        """Whether a schedule is known in whose middle the busiest device never idles."""
        found = self.periodic
        return found is not None and found.period == found.step * max(found.graph.work_per_microbatch)

    def applies(self, run: Run) -> str | None:
        """Where nothing tells the microbatches apart."""
        if run.problem.span:
            return "periodic schedules are sought for the makespan alone"
        return "what binds may tell microbatches apart" if run.problem.words else None

    def run(self, run: Run, seconds: float, *, like: Schedule | None = None, **options: Any) -> str:
        """Go on from what was found; ``like``: a schedule whose middle may repeat."""
        with uninterrupted():
            from ppopt import cpsat, periodic

        incumbent, ticks = run.incumbent, run.problem.pipeline.ticks
        run.versions["ortools"] = cpsat.VERSION
        traffic = int(ticks.lead.max() + ticks.tail.max())

        def report(value: int | None, bound: int) -> None:
            incumbent.report(None if value is None else value + traffic, bound)

        found = periodic.solve(
            run.problem.pipeline,
            lower_bound=max(0, incumbent.lower - traffic),
            limits=run.limits(seconds),
            upper=incumbent.target,
            start=self.periodic,
            base=self.base,
            like=like or incumbent.best,
            progress=report,
        )
        self.periodic, self.base = found.periodic or self.periodic, found.base or self.base
        if found.schedule is not None:
            incumbent.offer(found.schedule, self.name)
        run.taken += [Taken(f"repetition: {asked.question}", asked.seconds, asked.answer) for asked in found.steps]
        return incumbent.text() + ", sought without traffic" * ticks.margins
