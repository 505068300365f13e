"""What binds may leave a single order; then that is the answer."""

from __future__ import annotations

from typing import Any

from ppopt.constraints import spread
from ppopt.heuristics import covers, order_of
from ppopt.named.in_turn import out_of_turn
from ppopt.schedule import Schedule
from ppopt.search.run import Run
from ppopt.search.step import Kind, Needs, Step
from ppopt.timing import CyclicOrder, obeys_all, time_order
from ppopt.timing.demands import demands_of
from ppopt.timing.paths import shortest_spans

ARGUMENT = "the binding order, which leaves nothing open"
"""What proves the value of the only order, or that it is not possible."""


class BindingOrder(Step):
    """The only order that the binding constraints leave, if they do, and if the memory limit allows it."""

    name = "binding order"
    kind = Kind.DECIDE
    copies = True
    needs = Needs.GAP

    def run(self, run: Run, seconds: float, **options: Any) -> str:
        """Settle the problem, where there is only one order."""
        problem, incumbent = run.problem, run.incumbent
        try:
            schedule = self._only(run)
        except CyclicOrder:
            incumbent.refute(ARGUMENT)
            return "no order obeys all of it"
        if schedule is None:
            return "leaves something open"
        if not obeys_all(schedule, problem.words) or out_of_turn(problem.pipeline, schedule.order):
            incumbent.refute(ARGUMENT)
            return "no order obeys all of it"
        if not schedule.within_memory:
            incumbent.refute(ARGUMENT, schedule.objective(problem.objective))
            return "the only order exceeds the memory limit"
        incumbent.offer(schedule, "order")
        incumbent.settle(ARGUMENT)
        return incumbent.text()

    def _only(self, run: Run) -> Schedule | None:
        """The schedule of the only order; ``None``: there are several.

        Links may carry transfers in several orders, engines copies, and so may devices what excludes each other or is held
        between them.
        """
        pipeline, words = run.problem.pipeline, run.problem.words
        if pipeline.lines or pipeline.engines or not covers(pipeline, words) or any(spread(pipeline, word) for word in words):
            return None
        order = order_of(pipeline, words)
        schedule = None if order is None else time_order(pipeline, order, words=words)
        if schedule is not None and run.problem.span:
            schedule = shortest_spans(schedule, demands_of(pipeline, words))
        return schedule
