"""A kernel alone: what a modulo schedule repeats, without prologue or epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ppopt.constraints import FamilyGraph
from ppopt.periodic.periodic_schedule import PeriodicSchedule, retimed
from ppopt.pipeline import IntArray


@dataclass(frozen=True, eq=False)
class Kernel:
    """``unroll`` microbatches of every route in each ``period``; per family the starts of its ``unroll`` operations, from 0."""

    graph: FamilyGraph
    period: int
    start: tuple[IntArray, ...]

    @property
    def unroll(self) -> int:
        """The unroll factor: microbatches of every route per period."""
        return len(self.start[0])

    @classmethod
    def of(cls, periodic: PeriodicSchedule) -> Kernel:
        """That of a periodic schedule, counted from its microbatches 0 on."""
        unroll, period, rows = periodic.unroll, periodic.period, []
        for row, begin in zip(periodic.start, periodic.prologue, strict=True):
            iteration, copy = np.divmod(np.arange(begin, begin + unroll), unroll)
            rows.append((row[begin : begin + unroll] - iteration * period)[np.argsort(copy)])
        origin = int(rows[0][0])
        return cls(periodic.graph, period, tuple(row - origin for row in rows))

    def unrolled(self, times: int) -> Kernel:
        """The kernel that is ``times`` of this one."""
        shift = np.arange(times, dtype=np.int64)[:, None] * self.period
        return Kernel(self.graph, times * self.period, tuple((row + shift).ravel() for row in self.start))

    def with_ends(self, counts: Sequence[int]) -> PeriodicSchedule:
        """The kernel with a prologue and an epilogue, for as few microbatches as that takes; every operation as early as can be.

        A whole number of kernels leads from there to ``counts`` microbatches per route.
        """
        cut = max(int(row[0]) for row in self.start)  # by then every family has begun
        prologue = tuple(int((-(-(cut - row) // self.period)).clip(0).sum()) for row in self.start)
        copies = min(
            (counts[family.route] - done) // self.unroll - 1 for family, done in zip(self.graph.families, prologue, strict=True)
        )
        rows = []
        for family, row in zip(self.graph.families, self.start, strict=True):
            iteration, index = np.divmod(np.arange(counts[family.route] - copies * self.unroll), self.unroll)
            rows.append(row[index] + iteration * self.period)
        periodic = PeriodicSchedule(self.graph, tuple(rows), prologue, self.period, self.unroll)
        earliest = retimed(periodic, self.graph, self.period)
        assert earliest is not None, "a kernel repeats with its own period"
        return earliest


def least_period(graph: FamilyGraph, unroll: int) -> int:
    """A lower bound of the period of ``unroll`` microbatches: the minimum initiation interval of modulo scheduling.

    It is the larger of the work of a machine (the resource bound) and of a circle from an operation back to itself, ``shift``
    microbatches later (the recurrence bound). Circles are those that memory implies: it is given back no sooner.
    """
    bound = unroll * max(graph.work_per_microbatch)
    for before, after, shift, lag in graph.implied:
        chain = graph.path(after, before)
        if chain is not None and shift:
            bound = max(bound, -(-unroll * (chain + lag) // shift))
    return bound
