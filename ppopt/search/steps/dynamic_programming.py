"""Dynamic programming over what has started: is there a schedule of at most some makespan?"""

from __future__ import annotations

from typing import Any

from ppopt import dynamic
from ppopt.constraints import pairs_save_time, relaxed_graph
from ppopt.search.run import Run
from ppopt.search.step import SCATTERED, Kind, Step
from ppopt.timing import time_order


class DynamicProgramming(Step):
    """Ask whether the best can be beaten at all, and go on where that stopped; a beam search comes first.

    Where weight gradients are operations of their own, which nothing waits for, too many sets of operations can have started.
    """

    name = "dynamic programming"
    kind = Kind.DECIDE

    def __init__(self) -> None:
        self._question: dynamic.Question | None = None

    def applies(self, run: Run) -> str | None:
        """Where there is a schedule to beat, and a state says all."""
        problem = run.problem
        if problem.span:
            return "it knows makespans alone"
        if problem.words:
            return "it knows nothing of constraints that bind"
        if problem.pipeline.costs.split:
            return "weight gradients of their own leave too many states"
        if problem.pipeline.ticks.pauses:
            return "it knows nothing of pauses between passes"
        if pairs_save_time(problem.pipeline):
            return "it knows nothing of overlapped pairs"
        if run.incumbent.best is None:
            return "there is no schedule yet"
        return SCATTERED if problem.pipeline.backward_routes else dynamic.unknown(relaxed_graph(problem.pipeline))

    def run(self, run: Run, seconds: float, **options: Any) -> str:
        """Until there is none that is better, or the time is over."""
        incumbent, limits, said = run.incumbent, run.limits(seconds), "nothing better found"
        pipeline = run.problem.pipeline
        while run.goes_on and not limits.clock.over:
            question = self._question
            beaten = question is not None and question.started is not None and question.most >= incumbent.to_beat
            if question is None or beaten or question.most < incumbent.to_beat - 1:
                question = self._question = dynamic.Question(relaxed_graph(pipeline), incumbent.to_beat - 1)
            question.look(limits)
            question.go_on(limits)
            if question.refuted:
                incumbent.prove(question.most + 1, self.name)
                return f"none of {pipeline.time(question.most)}"
            if question.started is None:
                return "too many states" if question.given_up else f"{pipeline.time(question.most)}: not decided in time"
            schedule = run.problem.obeying(time_order(pipeline, question.order(pipeline)))
            if schedule is None:
                return "not decided: memory is more than states know of"
            if schedule.makespan > question.most:
                return "not decided: the rules are more than states know of"
            incumbent.offer(schedule, self.name)
            said = incumbent.text()
            if not pipeline.ticks.margins:
                incumbent.prove(question.least, self.name)
        return said
