"""For device spans of a large problem: the makespan first, which is far easier."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ppopt.bounds.latest_starts import beside_span
from ppopt.search.run import Run
from ppopt.search.step import Kind, Step

if TYPE_CHECKING:
    from ppopt.search.turns import Entry


class MakespanFirst(Step):
    """Search for the makespan: its schedules have good spans, and its bound is nearly one of spans."""

    name = "spans of the best makespan"
    kind = Kind.IMPROVE

    def run(self, run: Run, seconds: float, *, strategy: Iterable[Entry] = (), **options: Any) -> str:
        """Follow a ``strategy`` for the makespan, and take over what it has found."""
        incumbent, pipeline = run.incumbent, run.problem.pipeline
        inner = run.derived(run.problem.for_makespan(), seconds)
        inner.incumbent.best, inner.incumbent.source = incumbent.best, incumbent.source
        try:
            inner.follow(strategy)
        finally:
            run.learn(inner, "makespan")
            if inner.incumbent.infeasible:
                incumbent.refute(inner.incumbent.proved_by or "work")
            best = inner.incumbent.best
            if best is not None:
                incumbent.offer(best, inner.incumbent.source)
            beside = beside_span(pipeline)
            if beside is not None:
                incumbent.prove(inner.incumbent.lower - beside, inner.incumbent.proved_by or "work")
        return f"{incumbent.text_with_bound} (makespan {pipeline.time(inner.incumbent.lower)})"
