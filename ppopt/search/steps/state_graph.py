"""The state graph: exact where memory is so tight that there are few states."""

from __future__ import annotations

from typing import Any

from ppopt.bounds.throughput import slowest_wait, throughput
from ppopt.constraints import relaxed_graphs
from ppopt.search import tuning
from ppopt.search.run import Run
from ppopt.search.step import DIFFERENT, SCATTERED, Kind, Step
from ppopt.search.steps.closed_forms import learn


class StateGraph(Step):
    """The optimum where there are few states, and a bound from relaxations where there are more."""

    name = "bound: state graph"
    kind = Kind.BOUND
    copies = True

    def __init__(self) -> None:
        self.known = False
        """Whether the graph of all states was found: it says nothing more."""

    def tight(self, run: Run) -> bool:
        """Whether the memory of one stage costs throughput: then there are fewest states."""
        problem = run.problem
        if problem.pipeline.engines or self.applies(run) is not None:
            return False
        return slowest_wait(relaxed_graphs(problem.pipeline, problem.pairs)[0]) is not None

    def applies(self, run: Run) -> str | None:
        """Where memory bounds the number of states."""
        if run.problem.pipeline.backward_routes:
            return SCATTERED
        if len(set(run.problem.pipeline.route_of_microbatch)) > 1:
            return DIFFERENT if run.problem.differing else "microbatches take several routes"
        return "memory is unlimited" if run.problem.pipeline.amounts.limit is None else None

    def run(self, run: Run, seconds: float, *, most: int = 0, exact: bool = False, **options: Any) -> str:
        """Build it with up to ``most`` states; ``exact``: no relaxations."""
        if self.known:
            return "nothing new"
        problem = run.problem
        bound = throughput(
            problem.pipeline,
            problem.objective,
            pairs=problem.pairs,
            most=most,
            limits=run.limits(seconds),
            tuning=tuning.BOUNDS,
            exact=exact,
            target=run.incumbent.target,
        )
        self.known = bound is not None and bound.exact
        return learn(run, bound)
