"""An order that is pinned: branch and bound over the stages that recompute."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ppopt.named.recomputing.limits import Limits, Node
from ppopt.named.recomputing.stages import Key, Objective, stages_of, work_added
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order
from ppopt.timing.recomputed import BoolArray, Recomputed

TIMINGS, TIMED = 512, 2**22
"""Most timings of an order, and most times of single operations in them."""
TOGETHER = 32
"""The number of sets that branch and bound goes on from at once."""


def best_stages(none: Pipeline, every: Pipeline, order: Order, objective: Objective) -> list[int] | None:
    """The best set of stages for an order that is pinned; ``None``: no set fits.

    ``none`` and ``every`` are the two :func:`~ppopt.named.recomputing.stages.ends`. Exact up to :data:`TIMINGS` timings (fewer
    where the order has more than ``TIMED / TIMINGS`` operations); beyond them, the best set found.
    """
    timed, added = Recomputed(none, every, order), work_added(none, every)
    limits = Limits(timed.needs, added)
    root, fewest = limits.node(0, 0), limits.fewest()
    if root is None or fewest is None:
        return None
    if not root.lacking and objective == "makespan":  # whatever fits has these stages, and more take no less
        return stages_of(root.yes)
    timings = min(TIMINGS, TIMED // timed.operations)
    return stages_of(fewest if timings < 4 else Tree(timed, limits, objective, timings).best(root, fewest))


class Tree:
    """Branch and bound over the stages that recompute: the sets with the smallest bound are divided first."""

    def __init__(self, timed: Recomputed, limits: Limits, objective: Objective, timings: int) -> None:
        self.timed, self.limits, self.objective, self.left = timed, limits, objective, timings
        self.values: dict[int, tuple[int, int]] = {}
        """By the stages that recompute: the objective, and a bound of it for all sets that have these stages."""
        self.latest = timed.spans(self._choices([limits.every])).first
        """When the devices start at the latest."""

    def best(self, root: Node, fewest: int) -> int:
        """The best set that fits, as far as the timings last."""
        limits = self.limits
        starts = [fewest, limits.every]
        self._time([*starts, root.yes])
        best, found = min((self._key(stages), stages) for stages in starts)
        heap: list[tuple[Key, int, Node]] = []
        count = itertools.count()
        nodes = [root]
        while (nodes or heap) and self.left > 0:
            self._time([node.yes for node in nodes])
            for node in nodes:
                if node.yes in self.values and limits.fits(node.yes):
                    best, found = min((best, found), (self._key(node.yes), node.yes))
            for node in nodes:
                if node.yes in self.values and self._bound(node) < best:
                    heapq.heappush(heap, (self._bound(node), -next(count), node))  # of equal ones the latest: it has settled most
            chosen = [heapq.heappop(heap)[-1] for _ in range(min(TOGETHER, len(heap)))]
            nodes = [child for node in chosen if self._bound(node) < best for child in self._divided(node)]
        return found

    def _divided(self, node: Node) -> Iterator[Node]:
        """With and without one more stage recomputing."""
        added = self.limits.added
        open_ = stages_of(node.lacking or self.limits.every & ~(node.yes | node.no))
        if open_:
            stage = 1 << max(open_, key=lambda stage: (added[stage], -stage))
            for yes, no in ((node.yes | stage, node.no), (node.yes, node.no | stage)):
                child = self.limits.node(yes, no)
                if child is not None:
                    yield child

    def _time(self, sets: Iterable[int]) -> None:
        """Time the order with these stages, as long as there are timings left."""
        new = list(dict.fromkeys(stages for stages in sets if stages not in self.values))[: self.left]
        if not new:
            return
        self.left -= len(new)
        first, last = self.timed.spans(self._choices(new))
        makespans = last.max(axis=1).tolist()
        values, bounds = makespans, makespans
        if self.objective == "span":
            values, bounds = (last - first).max(axis=1).tolist(), (last - self.latest).max(axis=1).tolist()
        self.values.update(zip(new, zip(values, bounds, strict=True), strict=True))

    def _choices(self, sets: Sequence[int]) -> BoolArray:
        return np.array([[stages >> stage & 1 for stage in range(self.timed.stages)] for stages in sets], dtype=np.bool_)

    def _key(self, stages: int) -> Key:
        return self.values[stages][0], sum(self.limits.added[s] for s in stages_of(stages)), stages.bit_count()

    def _bound(self, node: Node) -> Key:
        return self.values[node.yes][1], node.added, node.size
