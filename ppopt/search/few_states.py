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
from ppopt.search.near_cuts import At
from ppopt.timing import time_order


class FewStates:
    """Looks at cuts by beam search (:data:`~ppopt.bounds.tight_lists.Look`). ``best``: what was found that takes the least."""

    def __init__(self, layers: int, per_unit: int, at: At, clock: Clock) -> None:
        self.best: Schedule | None = None
        self._layers, self._per_unit, self._at, self._clock = layers, per_unit, at, clock
        self._lock, self._least = Lock(), 0

    def __call__(self, ends: IntArray, durations: IntArray, windows: Windows, most: int) -> int | None:
        """How many ticks (of ``per_unit`` in a unit) a schedule takes that is found on a cut; ``None``: nothing is found."""
        pipeline = self._at(counts_of(ends, self._layers))
        if pipeline is None:
            return None
        graph = relaxed_graph(pipeline)
        if dynamic.unknown(graph) is not None:
            return None
        question = dynamic.Question(replace(graph, duration=tuple(durations.tolist())), most, windows)
        question.look(Limits(self._clock, 0.0, 1))
        if question.started is None:
            return None
        schedule = time_order(pipeline, question.order(pipeline))
        ticks = schedule.makespan * (self._per_unit // pipeline.ticks.per_unit)
        if ticks > most or not schedule.within_memory:
            return None
        with self._lock:
            if self.best is None or ticks < self._least:
                self.best, self._least = schedule, ticks
        return ticks
