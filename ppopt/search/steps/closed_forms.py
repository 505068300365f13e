"""Bounds in closed form: milliseconds, whatever the number of microbatches is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ppopt import bounds
from ppopt.bounds import Bound
from ppopt.search.run import Run
from ppopt.search.step import Kind, Needs, Step


def learn(run: Run, bound: Bound | None) -> str:
    """Keep what a bound says; this in words."""
    if bound is None:
        return "does not apply"
    run.incumbent.prove(bound.value, bound.argument)
    if bound.schedule is not None and not run.problem.words:
        run.incumbent.offer(bound.schedule, bound.argument)
    return f"{run.problem.pipeline.time(bound.value)}: {bound.proof}"


class ClosedForm(Step):
    """One bound of :mod:`ppopt.bounds`."""

    kind = Kind.BOUND
    copies = True
    needs = Needs.INTEREST
    bound: ClassVar[Callable[..., Bound | None]]

    def run(self, run: Run, seconds: float, **options: Any) -> str:
        """Raise the bound."""
        problem = run.problem
        return learn(run, type(self).bound(problem.pipeline, problem.objective, pairs=problem.pairs))


class Work(ClosedForm):
    """The largest work of a device. It comes first, so that even an early interrupt leaves a bound."""

    name = "bound: work"
    needs = Needs.NOTHING
    bound = staticmethod(bounds.work)


class OneMachine(ClosedForm):
    """Heads, work and tails of one device or link."""

    name = "bound: one machine"
    bound = staticmethod(bounds.machine)


class MemoryBound(ClosedForm):
    """What the memory limits imply."""

    name = "bound: memory"
    bound = staticmethod(bounds.memory)
