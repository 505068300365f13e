"""Beam search on single cuts: the order of a listed cut that shaving leaves, from few states of each layer."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock

from ppopt import dynamic
from ppopt.bounds.many_cuts import counts_of
from ppopt.bounds.shaving import Windows
from ppopt.clock import Clock, Limits
from ppopt.constraints import relaxed_graph
from ppopt.pipeline import IntArray
from ppopt.schedule import Schedule
from ppopt.search import tuning
from ppopt.search.near_cuts import At, value_of
from ppopt.search.over_cuts import OverCuts
from ppopt.timing import time_order


class BeamSearch:
    """Looks at cuts by beam search (:data:`~ppopt.bounds.tight_lists.Look`). ``best``: what was found that takes the least."""

    def __init__(self, over: OverCuts, at: At, clock: Clock) -> None:
        self.best: Schedule | None = None
        self._over, self._at, self._clock = over, at, clock
        self._lock = Lock()

    def __call__(self, ends: IntArray, durations: IntArray, windows: Windows, most: int) -> int | None:
        """How many ticks of all cuts a schedule takes that is found on a cut; ``None``: nothing is found."""
        over = self._over
        pipeline = self._at(counts_of(ends, over.model.layers))
        if pipeline is None:
            return None
        self._clock.charge(tuning.SCHEDULED * pipeline.index.computations)
        graph = relaxed_graph(pipeline)
        if graph.families != over.families or dynamic.unknown(graph) is not None:  # a stage may have no weight gradient
            return None
        question = dynamic.Question(replace(graph, duration=tuple(durations.tolist())), most, windows)
        question.look(Limits(self._clock, 0.0, 1))
        if question.started is None:
            return None
        schedule = time_order(pipeline, question.order(pipeline))
        ticks = schedule.makespan * (over.per_unit // pipeline.ticks.per_unit)
        if ticks > most or not schedule.within_memory:
            return None
        with self._lock:
            if self.best is None or value_of(schedule, "makespan") < value_of(self.best, "makespan"):
                self.best = schedule
        return ticks
