"""All cuts of layers into stages for a fixed order of fused operations: what they take, what they hold, and what recomputes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from ortools.sat.python import cp_model

from ppopt.bounds.cuts import CutModel, End
from ppopt.bounds.ways import Part
from ppopt.op import Kind


class OrderCuts(CutModel):
    """A :class:`CutModel` of operations ``F`` and fused backwards, which are its ``I``.

    ``forward`` and ``backward`` are the ticks of each layer.
    """

    def __init__(self, forward: Sequence[int], backward: Sequence[int], stages: int) -> None:
        super().__init__({Kind.F: forward, Kind.I: backward, Kind.W: [0] * len(forward)}, stages)
        self.saved: list[End] = [self.model.new_constant(0)] * stages
        """What a microbatch holds less on each stage, because of what recomputes."""

    def recompute_first(self, times: Sequence[int], saved: Sequence[int]) -> None:
        """The first n layers of each stage recompute, whatever n is, the same for all; the first layer of all does not count.

        ``times`` and ``saved`` are what that means for each layer: ticks of its backward, and of what it holds.
        """
        number = self.model.new_int_var(0, self.layers, "")
        ends = self.ends([1] * self.layers)
        tables = [list(accumulate(of, initial=0)) for of in (times, saved)]
        for stage in range(self.stages):
            until = self.model.new_int_var(0, self.layers, "")
            self.model.add_min_equality(until, [ends[stage] + number + (stage == 0), ends[stage + 1]])
            longer, less = (self._at(until, table) - self._at(ends[stage], table) for table in tables)
            self.more[Part(Kind.I, stage)], self.saved[stage] = longer, less

    def _at(self, place: End, table: Sequence[int]) -> End:
        """The entry of a table at a place."""
        found = self.model.new_int_var(0, table[-1], "")
        self.model.add_element(place, table, found)
        return found

    def hold_at_once(self, held: Sequence[End], always: Sequence[End], count: Mapping[int, int], most: int) -> None:
        """Keep a device within ``most``, where it has so many microbatches of its stages at once.

        ``held`` and ``always``: :meth:`ends` of what layers hold of a microbatch, and always.
        """
        parts = [n * (held[s + 1] - held[s] - self.saved[s]) + always[s + 1] - always[s] for s, n in count.items()]
        self.model.add(cp_model.LinearExpr.sum(parts) <= most)

    def keep_together(self, layers: range, stage: int) -> None:
        """Some layers in a row are on one stage, on ``stage`` or one behind it."""
        for s, row in enumerate(self.below):
            self.model.add(row[layers[0]] == row[layers[-1]])
            if s < stage:
                self.model.add(row[layers[0]] == 0)
