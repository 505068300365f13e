"""A block of fixed slots, repeated: one microbatch's operations, the next one's a period later, and so on.

Qi et al. 2024, arXiv 2405.15362. The slots fix the order of forwards and input gradients where the pipeline is full. Around that,
and for weight gradients, a list scheduler takes what can run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ppopt.clock import check_time
from ppopt.constraints import Listed, Precede, Word, chain
from ppopt.heuristics.jobs import Jobs
from ppopt.heuristics.list_scheduling import filled_order
from ppopt.heuristics.priorities import Keys
from ppopt.op import Kind
from ppopt.pipeline import Costs, IntArray, Links, Memory, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order


@dataclass(frozen=True)
class Block:
    """The slots of microbatch 0's operations, by stage. Microbatch m's are ``m * period`` later."""

    period: int
    forward: tuple[int, ...]
    input_gradient: tuple[int, ...]

    @property
    def last(self) -> int:
        """The largest slot."""
        return max(*self.forward, *self.input_gradient)

    def rows(self, pipeline: Pipeline) -> Iterator[tuple[IntArray, IntArray]]:
        """Per device, the slots of its forwards and input gradients in their order, and their numbers
        (:class:`~ppopt.op.OpIndex`); of those of one slot the earlier stage comes first, and the forward."""
        later = self.period * np.arange(pipeline.microbatches)
        for device in range(pipeline.devices):
            check_time()
            columns = [
                (slots[stage] + later, pipeline.index.family(stage, kind) + np.arange(pipeline.microbatches))
                for stage, home in enumerate(pipeline.routes[0])
                if home == device
                for kind, slots in ((Kind.F, self.forward), (Kind.I, self.input_gradient))
            ]
            slot, numbers = (np.concatenate(column) for column in zip(*columns, strict=True))
            order = np.argsort(slot, kind="stable")
            yield slot[order], numbers[order]

    def priority(self, jobs: Jobs) -> Keys:
        """The earlier slot first, weight gradients last: a :data:`~ppopt.heuristics.priorities.Rule`."""
        features = jobs.features
        slots = np.zeros((len(Kind), len(self.forward)), dtype=np.int64)
        slots[Kind.F], slots[Kind.I] = self.forward, self.input_gradient
        return (features.kind == Kind.W).astype(np.int64), slots[features.kind, features.stage] + self.period * features.turn


def repeated(pipeline: Pipeline, words: tuple[Word, ...], block: Block) -> Schedule:
    """The block, repeated: F and I in the order of their slots, W where a device would be idle or ``words`` ask for it.

    Only while the pipeline fills and after the last microbatch has entered, an operation may run before others of earlier
    slots that cannot. How long filling lasts, and whether all this is done with the true costs or with equal ones, is tried
    out on at most 2D microbatches. What gives the shortest makespan with the true costs is kept.

    Raises:
        Stuck, CyclicOrder: the words do not go together with the block.
    """
    tried = 2 * pipeline.devices
    small = pipeline if pipeline.microbatches <= tried else pipeline.changed(microbatches=tried)
    equal = _with_equal_costs(small)
    same = (replace(small.costs, per="stage"), small.links, small.recompute) == (equal.costs, equal.links, equal.recompute)
    views = (small,) if same else (small, equal)  # of a stage or of a device: equal costs give the same order
    first_back = block.input_gradient[0]  # the pipeline is full when the first microbatch is back, or some periods before
    begins = (0, *(first_back - block.period * periods for periods in range(4)))
    found = [(time_order(small, _order(view, words, block, begin)), begin, view) for begin, view in product(begins, views)]
    best, begin, view = min(found, key=lambda way: way[0].makespan)
    if small is pipeline:
        return best
    return time_order(pipeline, _order(pipeline if view is small else _with_equal_costs(pipeline), words, block, begin))


def _with_equal_costs(pipeline: Pipeline) -> Pipeline:
    costs = Costs(per="stage", weight_pieces=pipeline.costs.weight_pieces)
    return pipeline.changed(costs=costs, links=Links(), memory=Memory(), recompute="none", offload=None)


def _order(pipeline: Pipeline, words: tuple[Word, ...], block: Block, begin: int) -> Order:
    """The order with filling until slot ``begin`` (0: the order of the slots throughout)."""
    last = pipeline.microbatches - 1
    entered = block.period * last if begin else block.period * pipeline.microbatches + block.last
    pinned: list[Word] = []
    for slots, numbers in block.rows(pipeline):
        first, end = np.searchsorted(slots, begin), np.searchsorted(slots, entered, side="right")
        before, steady, after = (Listed.of(pipeline.index, part) for part in np.split(numbers, [first, end]))
        if first < end:
            pinned.append(chain(steady))
            pinned.append(Precede(before, Listed.of(pipeline.index, np.full(first, numbers[first]))))
            pinned.append(Precede(Listed.of(pipeline.index, np.full(len(after), numbers[end - 1])), after))
    return filled_order(pipeline, (*words, *pinned), block.priority)
