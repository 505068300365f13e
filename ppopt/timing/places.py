"""An order of operations in which it is open which microbatch takes which place: what is known once the first places are taken.

The order is that of a pipeline whose microbatches are alike; its microbatches are *places*. Once the first ``k + 1`` places are
taken, the times of all operations are known that wait for no later place (:attr:`Places.steps`). Of these only the ends of some
matter for the rest (:attr:`Places.open`), and of the places only those that have something left to do (:attr:`Places.begun`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppopt.pipeline import Pipeline
from ppopt.pipeline.holding import memory_changes
from ppopt.schedule import Order, of_stages
from ppopt.timing.demands import NO_DEMANDS
from ppopt.timing.timed import _devices, _flat, _positions, _waits


class Placed(NamedTuple):
    """An operation: its place, family and device; what it waits for, with the ticks between; how early it may start."""

    place: int
    family: int
    device: int
    waits: tuple[tuple[int, int], ...]
    lead: int
    tail: int


@dataclass(frozen=True)
class Places:
    """The operations of an order, each device's in its row one after the other, and ``step``: of each, the place that it is known
    with. ``together`` microbatches in a row are taken at once: the pieces of a sequence."""

    ops: tuple[Placed, ...]
    rows: tuple[range, ...]
    step: tuple[int, ...]
    sequence: tuple[int, ...]
    """All operations, each behind what it waits for."""
    count: int
    """Of places to be taken, each by a sequence."""
    together: int

    @cached_property
    def steps(self) -> list[list[int]]:
        """Of each place, the operations that are known with it, each behind what it waits for."""
        found: list[list[int]] = [[] for _ in range(self.count)]
        for o in self.sequence:
            found[self.step[o]].append(o)
        return found

    @cached_property
    def open(self) -> list[list[int]]:
        """Of each place, the operations that are known with it, or before, and waited for by others."""
        last = [-1] * len(self.ops)
        for o, op in enumerate(self.ops):
            for before, _ in op.waits:
                last[before] = max(last[before], self.step[o])
        found: list[list[int]] = [[] for _ in range(self.count)]
        for o, until in enumerate(last):
            for k in range(self.step[o], until):
                found[k].append(o)
        return found

    @cached_property
    def begun(self) -> list[list[int]]:
        """Of each place, the places up to it of which operations are not known yet."""
        until = [0] * self.count
        for op, step in zip(self.ops, self.step, strict=True):
            until[self.taken(op)] = max(until[self.taken(op)], step)
        return [[place for place in range(k + 1) if until[place] > k] for k in range(self.count)]

    def taken(self, op: Placed) -> int:
        """Which place to be taken an operation is of."""
        return op.place // self.together


def places_of(pipeline: Pipeline, order: Order, per_unit: int, together: int = 1) -> Places:
    """The places of an order of ``pipeline``, whose microbatches are alike and whose transfers are mere delays.

    Waits are in ticks of ``per_unit`` in a unit of time, as the microbatches have them that take the places.

    Raises:
        OrderError: an operation is missing, run twice, or on another device than its stage.
    """
    numbers, offsets = _flat(pipeline, order)
    device = _devices(offsets)
    needs = _waits(pipeline, _positions(pipeline, numbers, device), NO_DEMANDS)
    before: list[list[tuple[int, int]]] = [[] for _ in numbers]

    def whole(ticks: int) -> int:
        return int(Fraction(ticks * per_unit, pipeline.ticks.per_unit))

    for first, then, lag in zip(*(column.tolist() for column in needs), strict=True):
        before[then].append((first, whole(lag)))
    rows = tuple(range(a, b) for a, b in pairwise(offsets.tolist()))
    for row in rows:
        for o in row[1:]:
            before[o].append((o - 1, 0))
    family, place = (column.tolist() for column in np.divmod(numbers, pipeline.microbatches))
    lead, tail = (of_stages(pipeline, numbers, table).tolist() for table in (pipeline.ticks.lead, pipeline.ticks.tail))
    columns = zip(place, family, device.tolist(), map(tuple, before), map(whole, lead), map(whole, tail), strict=True)
    ops = tuple(Placed(*each) for each in columns)
    sequence = _in_sequence(before)
    step = [op.place // together for op in ops]
    for o in sequence:
        step[o] = max([step[o], *(step[b] for b, _ in before[o])])
    return Places(ops, rows, tuple(step), tuple(sequence), pipeline.microbatches // together, together)


def changes_of(pipeline: Pipeline, microbatch: int) -> tuple[list[int], list[int]]:
    """By family, what an operation of a microbatch claims at its start, and releases at its end."""
    families = 4 * pipeline.stages
    numbers = np.arange(families) * pipeline.microbatches + microbatch
    claimed, released = memory_changes(pipeline, numbers)
    return claimed.tolist(), released.tolist()


def _in_sequence(before: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    left, after = [len(each) for each in before], [list[int]() for _ in before]
    for o, each in enumerate(before):
        for b, _ in each:
            after[b].append(o)
    ready, found = [o for o, count in enumerate(left) if not count], list[int]()
    while ready:
        found.append(ready.pop())
        for o in after[found[-1]]:
            left[o] -= 1
            if not left[o]:
                ready.append(o)
    assert len(found) == len(before), "the order of alike microbatches was timed"
    return found
