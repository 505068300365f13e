"""Is there a schedule of at most some makespan?"""

from __future__ import annotations

import numpy as np

from ppopt.bounds.edge_finding import EdgeFinding
from ppopt.bounds.shaving import Shaving, Windows
from ppopt.clock import Limits
from ppopt.constraints import FamilyGraph
from ppopt.dynamic.layers import Layers
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order


class Question:
    """Whether a graph has a schedule that takes at most ``most`` ticks. It can go on where it stopped (:meth:`go_on`).

    ``refuted``: it has none. ``started``: else a family, by number, for each operation, in an order in which those of each
    machine run in one whose last operation ends as early as can be: after ``least`` ticks.
    """

    def __init__(self, graph: FamilyGraph, most: int) -> None:
        self.most, self.refuted = most, False
        self.started: tuple[int, ...] | None = None
        self.least = 0
        self._graph, self._shaving = graph, Shaving(EdgeFinding(graph), graph.duration, most)
        self._both: tuple[Layers, ...] = ()
        """Those of both directions of time."""

    @property
    def answered(self) -> bool:
        """Whether the answer is known."""
        return self.refuted or self.started is not None

    @property
    def given_up(self) -> bool:
        """Whether it will not be known, as there are too many states."""
        return bool(self._both) and all(one.given_up for one in self._both)

    def go_on(self, limits: Limits) -> None:
        """Until the answer is known, or the clock is over.

        Until one direction of time has come to its end.
        """
        self._shaving.go_on(limits.clock)
        self.refuted = self._shaving.refuted
        if self.answered or not self._shaving.ended:
            return
        if not self._both:
            windows, last = self._shaving.windows, self.most
            back = Windows(last - windows.late[::-1], last - windows.early[::-1])
            self._both = Layers(self._graph, windows), Layers(self._graph.reversed(), back)
        while not self._ended and not limits.clock.over:
            self._next.advance(limits)
        for backwards, one in enumerate(self._both):
            self.refuted = self.refuted or one.refuted
            if one.found:
                families, last = one.started(), len(self._graph.families) - 1
                self.started = tuple(last - family for family in families[::-1]) if backwards else tuple(families)
                self.least = one.least

    def order(self, pipeline: Pipeline) -> Order:
        """The order of the schedule that was found, for the pipeline that the graph is of."""
        assert self.started is not None
        graph = self._graph
        rows, counts = [list[int]() for _ in range(graph.devices)], [0] * len(graph.families)
        for number in self.started:
            family = graph.families[number]
            rows[graph.owner[number]].append(pipeline.index.family(family.stage, Kind(family.kind)) + counts[number])
            counts[number] += 1
        return Order(pipeline.index, tuple(np.array(row, dtype=np.int64) for row in rows))

    @property
    def _ended(self) -> bool:
        return self.given_up or any(one.found or one.refuted for one in self._both)

    @property
    def _next(self) -> Layers:
        """The direction that is to go on: the one with fewer states in its last layer, so never from a layer that has more states
        than the widest of the other direction, unless that was given up."""
        return min(self._both, key=lambda one: (one.given_up, one.number))
