"""The smallest period of a kernel: modulo scheduling as a CP-SAT decision model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from ppopt.clock import Limits
from ppopt.constraints import FamilyGraph, Precedence, Reservoir
from ppopt.cpsat import engine
from ppopt.cpsat.posting import waits
from ppopt.cpsat.running import Solution
from ppopt.periodic.kernel import Kernel
from ppopt.pipeline import IntArray
from ppopt.timing.paths import NEVER


class KernelModel:
    """Is there a kernel with this period?

    Variables are the starts, the first family's first at 0. Of two operations ``a`` and ``b`` on one machine, ``b`` starts some
    whole periods after ``a`` and a rest that leaves room for both. How many whole periods, says one literal for each number that
    is possible: whether it is at least that. It is an order of two operations of the unrolled schedule. When ``b`` starts, this
    number is by how much more copies of ``a`` than of ``b`` have begun; so what a device holds is a sum of these numbers.
    ``near`` is a hint. With ``reach`` the numbers are to be no further than that from those of ``near``; with ``free`` besides,
    they are those of ``near`` unless both operations are free (numbered ``family * unroll + copy``).
    """

    def __init__(
        self,
        graph: FamilyGraph,
        period: int,
        unroll: int,
        near: Kernel | None,
        reach: int | None,
        *,
        free: Collection[int] | None = None,
    ) -> None:
        self.graph, self.period, self.unroll = graph, period, unroll
        self.near = None if near is None else [time for row in near.start for time in row.tolist()]
        self.near_period, self.reach, self.free = 1 if near is None else near.period, reach, free
        self.model = cp_model.CpModel()
        copies = range(unroll)
        self.most_periods = 3 + 2 * (sum(graph.duration) + sum(edge.lag for edge in graph.precedences)) // period
        precedences = self._precedences()
        longest_path = _longest_paths(precedences, unroll * len(graph.families))
        self.possible = longest_path is not None
        if longest_path is None:
            return
        self.longest_path = longest_path
        horizon = self.most_periods * period
        self.start = [self.model.new_int_var(0, horizon, f"{family}({k})") for family in graph.families for k in copies]
        self.model.add(self.start[0] == 0)
        for before, after, lag in precedences:
            waits(self.model, self.start[before], self.start[after], lag)
        self.periods_apart: dict[tuple[int, int], Any] = {}
        for x, time in zip(self.start, self.near or (), strict=False):
            self.model.add_hint(x, time)
        for _, families in graph.machines:
            for a, b in combinations([o * unroll + k for o in families for k in copies], 2):
                self._no_overlap(a, b)
        for room in graph.reservoirs:
            if not room.simple and room.held:
                self._reservoir(room)

    def _precedences(self) -> list[tuple[int, int, int]]:
        """``start[after] >= start[before] + wait``: families in order, data, and what follows from memory limits."""
        graph, unroll, period = self.graph, self.unroll, self.period
        in_order = [Precedence(o, o, 1, 0) for o in range(len(graph.families))]
        found = []
        for before, after, shift, lag in (*in_order, *graph.precedences, *graph.implied):
            for k in range(unroll):
                iteration, copy = divmod(k - shift, unroll)
                found.append((before * unroll + copy, after * unroll + k, graph.duration[before] + lag + iteration * period))
        return found

    def _no_overlap(self, a: int, b: int) -> None:
        """The two do not overlap in any copy of the kernel."""
        if (a, b) in self.periods_apart:
            return
        period, own, other = self.period, *(self.graph.duration[x // self.unroll] for x in (a, b))
        if a // self.unroll == b // self.unroll:  # in order, and within a period
            self.periods_apart[a, b], self.periods_apart[b, a] = 0, -1
            return
        low = max(-self.most_periods, -((period - other - int(self.longest_path[a, b])) // period))
        high = min(self.most_periods, (-int(self.longest_path[b, a]) - own) // period)
        near = None if self.near is None else (self.near[b] - self.near[a]) // self.near_period
        if near is not None and self.reach is not None:
            reach = self.reach if self.free is None or (a in self.free and b in self.free) else 0
            low, high = max(low, near - reach), min(high, near + reach)
        self.possible &= low <= high
        behind = self.start[b] - self.start[a]
        self.model.add_linear_constraint(behind, low * period + own, (high + 1) * period - other)
        at_least = [self.model.new_bool_var("") for _ in range(low, high)]
        for number, literal in enumerate(at_least, start=low + 1):
            self.model.add(behind >= number * period + own).only_enforce_if(literal)
            self.model.add(behind <= number * period - other).only_enforce_if(~literal)
            if near is not None:
                self.model.add_hint(literal, number <= near)
        for less, more in pairwise(at_least):
            self.model.add_implication(more, less)
        self.periods_apart[a, b] = low + sum(at_least)
        self.periods_apart[b, a] = -1 - self.periods_apart[a, b]

    def _reservoir(self, room: Reservoir) -> None:
        """What is held when a claim begins, of every pair the copies that have begun and are not over."""
        copies = range(self.unroll)
        for claim in (o * self.unroll + k for o in sorted({held.first for held in room.held}) for k in copies):
            now: Any = 0
            for held in room.held:
                for first, last in ((held.first * self.unroll + k, held.last * self.unroll + k) for k in copies):
                    begun = 0 if first == claim else self.periods_apart[first, claim]
                    now += held.amount * (begun - self.periods_apart[last, claim])
            self.model.add(now <= room.limit)

    def found(self, solution: Solution) -> Kernel:
        """What a search has found."""
        flat = np.array([solution.value(x) for x in self.start], dtype=np.int64)
        return Kernel(self.graph, self.period, tuple(flat.reshape(-1, self.unroll)))


def _longest_paths(precedences: Sequence[tuple[int, int, int]], size: int) -> IntArray | None:
    """``[a, b]``: how long after ``a`` at least ``b`` starts, by any path; ``None``: some operation waits for itself."""
    longest = np.full((size, size), NEVER, dtype=np.int64)
    np.fill_diagonal(longest, 0)
    for before, after, wait in precedences:
        longest[before, after] = max(longest[before, after], wait)
    for through in range(size):
        if longest[through, through] > 0:
            return None
        np.maximum(longest, longest[:, through, None] + longest[through], out=longest)
    return None if longest.diagonal().any() else longest


def find_kernel(
    graph: FamilyGraph,
    period: int,
    unroll: int,
    limits: Limits,
    seconds: float,
    near: Kernel | None = None,
    reach: int | None = None,
) -> tuple[Kernel | None, bool]:
    """A kernel with this period, and whether the answer is certain (a found one is, and a refuted one).

    ``seconds``: most for the search. ``near``: one of the same unroll factor to begin it with. With ``reach`` only such kernels
    are meant in which operations that share a machine are at most ``reach`` periods more or less apart than there.

    Raises:
        KeyboardInterrupt: a signal came before the search.
    """
    if period < max(1, unroll * max(graph.work_per_microbatch)):
        return None, True
    model = KernelModel(graph, period, unroll, near, reach)
    if not model.possible:
        return None, True
    # presolve takes longer than the search, relaxations help
    answer = engine.search(model.model, limits, engine.SMALL_RELAXED, seconds=seconds)
    return (model.found(answer), True) if answer.found else (None, answer.certain)
