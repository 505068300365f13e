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

WIDEST = 100
"""States that a beam keeps in a layer. Measured on 20 cuts of 28 layers in 16 stages, 8 microbatches, that shaving leaves below
what is 1.3 % above the optimum of all: with 10 there is a better schedule on one of them, with 30 on 5, with 100 on 6, four times
the best one, with 300 on the same 6; in 10, 10, 15 and 26 s, most of which is shaving with 30 states and fewer."""


class Question:
    """Whether a graph has a schedule that takes at most ``most`` ticks. It can go on where it stopped (:meth:`go_on`).

    ``windows``: of its operations then, if they are known; else shaving comes first. ``refuted``: it has none. ``started``: else
    a family, by number, for each operation, in an order in which those of each machine run in one. ``least``: no schedule takes
    less, in ticks; 0: that is not known.
    """

    def __init__(self, graph: FamilyGraph, most: int, windows: Windows | None = None) -> None:
        self.most, self.refuted = most, False
        self.started: tuple[int, ...] | None = None
        self.least = 0
        self._graph, self._windows = graph, windows
        self._shaving = Shaving(EdgeFinding(graph), graph.duration, most) if windows is None else None
        self._both: tuple[Layers, ...] = ()
        """Those of both directions of time."""
        self._beams: tuple[Layers, ...] = ()

    @property
    def answered(self) -> bool:
        """Whether the answer is known."""
        return self.refuted or self.started is not None

    @property
    def given_up(self) -> bool:
        """Whether it will not be known, as there are too many states."""
        return bool(self._both) and all(one.given_up for one in self._both)

    def _shave(self, limits: Limits) -> None:
        """Find the windows, as far as there is time."""
        if self._windows is None and self._shaving is not None:
            self._shaving.go_on(limits.clock)
            self.refuted = self._shaving.refuted
            self._windows = self._shaving.windows if self._shaving.ended else None

    def look(self, limits: Limits) -> None:
        """Look for a schedule by a beam search in each direction of time: few states of each layer go on, those that leave
        the machines the most time. What is found may not be the best, and there may be one where nothing is found."""
        self._shave(limits)
        if not self.answered and self._windows is not None:
            self._beams = self._beams or self._directions(self._windows, WIDEST)
            for one in self._beams:
                while not one.ended and not limits.clock.over:
                    one.advance(limits)
            self._note(self._beams)

    def go_on(self, limits: Limits) -> None:
        """Until the answer is known, or the clock is over.

        Until one direction of time has come to its end.
        """
        self._shave(limits)
        if self.answered or self._windows is None:
            return
        self._both = self._both or self._directions(self._windows)
        while not self._ended and not limits.clock.over:
            self._next.advance(limits)
        self._note(self._both)

    def _directions(self, windows: Windows, widest: int | None = None) -> tuple[Layers, Layers]:
        last = self.most
        back = Windows(last - windows.late[::-1], last - windows.early[::-1])
        return Layers(self._graph, windows, widest), Layers(self._graph.reversed(), back, widest)

    def _note(self, both: tuple[Layers, ...]) -> None:
        """What both directions have shown."""
        last = len(self._graph.families) - 1
        self.refuted = self.refuted or any(one.refuted for one in both)
        found = [one for one in both if one.found]
        if found:
            best = min(found, key=lambda one: one.least)
            families = best.started()
            self.started = tuple(families if best is both[0] else (last - family for family in families[::-1]))
            self.least = max(one.least if one.whole else 0 for one in found)

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
