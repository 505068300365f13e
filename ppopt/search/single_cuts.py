"""Schedules on single listed cuts that shaving leaves: by beam search, and by dynamic programming."""

from __future__ import annotations

import functools
from dataclasses import replace
from threading import Lock

from ppopt import dynamic
from ppopt.bounds.many_cuts import counts_of
from ppopt.bounds.tight_lists import Decision, OnCut
from ppopt.clock import Clock, Limits
from ppopt.constraints import relaxed_graph
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.search import tuning
from ppopt.search.near_cuts import At, value_of
from ppopt.search.over_cuts import OverCuts
from ppopt.timing import time_order


class SingleCuts:
    """Solves single cuts (:class:`~ppopt.bounds.tight_lists.Solver`). ``best``: what was found that takes the least.

    Whether a cut has less is decided where states say all of it, memory is not limited and weight gradients are no operations of
    their own, and no more once it has shown that they do not.
    """

    def __init__(self, over: OverCuts, at: At) -> None:
        self.best: Schedule | None = None
        self._over, self._at = over, at
        self._unknown = False
        self._begun: dict[tuple[bytes, int], tuple[Pipeline, dynamic.Question]] = {}
        """What is not decided, by the ends of the stages and at most how many ticks."""
        self._lock = Lock()

    @property
    def decides(self) -> bool:
        """Whether it is decided what cuts have."""
        return not self._unknown and self._told

    @functools.cached_property
    def _told(self) -> bool:
        """Whether states say all."""
        over = self._over
        return not over.limited and not over.graph.of_kind(Kind.W) and dynamic.unknown(over.graph) is None

    def look(self, cut: OnCut, clock: Clock) -> int | None:
        """The ticks that a schedule takes which a beam search finds; ``None``: it finds none."""
        if (asked := self._question(cut, clock)) is None:
            return None
        pipeline, question = asked
        question.look(Limits(clock, 0.0, 1))
        return self._found(cut, pipeline, question)

    def decide(self, cut: OnCut, limits: Limits) -> Decision:
        """Whether there is a schedule at all, by dynamic programming."""
        key = cut.ends.tobytes(), cut.most
        listed = self._over.listed
        makespans = range(0) if listed is None else listed.makespans
        with self._lock:  # what was begun takes much room
            self._begun = {of: asked for of, asked in self._begun.items() if of[1] in makespans}
            begun = self._begun.pop(key, None)
        if (asked := begun or self._question(cut, limits.clock)) is None:
            self._give_up()
            return Decision()
        pipeline, question = asked
        question.go_on(limits)
        found = self._found(cut, pipeline, question)
        if question.started is not None and found is None:  # memory is more than states know of
            self._give_up()
        elif not question.answered and not question.given_up and self.decides:
            with self._lock:
                self._begun[key] = asked
        return Decision(found, cut.most + 1 if question.refuted else question.least, question.given_up)

    def forget(self) -> None:
        """Forget what was begun: it takes much room, and nothing of it goes on."""
        with self._lock:
            self._begun = {}

    def _give_up(self) -> None:
        self._unknown = True
        self.forget()

    def _question(self, cut: OnCut, clock: Clock) -> tuple[Pipeline, dynamic.Question] | None:
        """Whether a cut has so little, and its pipeline; ``None``: states cannot tell."""
        over = self._over
        pipeline = self._at(counts_of(cut.ends, over.model.layers))
        if pipeline is None:
            return None
        clock.charge(tuning.SCHEDULED * pipeline.index.computations)
        graph = relaxed_graph(pipeline)
        if graph.families != over.graph.families or dynamic.unknown(graph) is not None:  # a stage may have no weight gradient
            return None
        return pipeline, dynamic.Question(replace(graph, duration=tuple(cut.durations.tolist())), cut.most, cut.windows)

    def _found(self, cut: OnCut, pipeline: Pipeline, question: dynamic.Question) -> int | None:
        """The ticks of all cuts that the schedule takes which a question has found."""
        if question.started is None:
            return None
        schedule = time_order(pipeline, question.order(pipeline))
        ticks = schedule.makespan * (self._over.per_unit // pipeline.ticks.per_unit)
        if ticks > cut.most or not schedule.within_memory:
            return None
        with self._lock:
            if self.best is None or value_of(schedule, "makespan") < value_of(self.best, "makespan"):
                self.best = schedule
        return ticks
