"""The smallest period: modulo scheduling with CP-SAT, without beginning or end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from ppopt.clock import Limits
from ppopt.constraints import FamilyGraph, Precedence, Reservoir
from ppopt.cpsat import engine
from ppopt.cpsat.engine import Solution
from ppopt.cpsat.posting import waits
from ppopt.periodic.periodic import Periodic, retimed
from ppopt.pipeline import IntArray
from ppopt.timing.paths import NEVER

_PATH = 1e-9
"""Deterministic seconds for every three operations between which the longest paths are sought; about what it takes."""


@dataclass(frozen=True, eq=False)
class Rotation:
    """A periodic schedule without ends: ``step`` microbatches per ``period``; per family its ``step`` starts, from 0."""

    graph: FamilyGraph
    period: int
    start: tuple[IntArray, ...]

    @property
    def step(self) -> int:
        """Microbatches of every route per period."""
        return len(self.start[0])

    @classmethod
    def of(cls, periodic: Periodic) -> Rotation:
        """What a periodic schedule repeats, counted from its microbatches 0 on."""
        step, period, rows = periodic.step, periodic.period, []
        for row, first in zip(periodic.start, periodic.first, strict=True):
            turns, copy = np.divmod(np.arange(first, first + step), step)
            rows.append((row[first : first + step] - turns * period)[np.argsort(copy)])
        begin = int(rows[0][0])
        return cls(periodic.graph, period, tuple(row - begin for row in rows))

    def unrolled(self, turns: int) -> Rotation:
        """The same with that many turns as one."""
        shift = np.arange(turns, dtype=np.int64)[:, None] * self.period
        return Rotation(self.graph, turns * self.period, tuple((row + shift).ravel() for row in self.start))

    def begun(self, counts: Sequence[int]) -> Periodic:
        """The rotation with a beginning and an end, for as few microbatches as that takes; every operation as early as can be.

        ``counts`` per route differ from their number by a whole number of periods.
        """
        cut = max(int(row[0]) for row in self.start)  # by then every family has begun
        first = tuple(int((-(-(cut - row) // self.period)).clip(0).sum()) for row in self.start)
        copies = min(
            (counts[family.route] - done) // self.step - 1 for family, done in zip(self.graph.families, first, strict=True)
        )
        rows = []
        for family, row in zip(self.graph.families, self.start, strict=True):
            turns, index = np.divmod(np.arange(counts[family.route] - copies * self.step), self.step)
            rows.append(row[index] + turns * self.period)
        periodic = Periodic(self.graph, tuple(rows), first, self.period, self.step)
        earliest = retimed(periodic, self.graph, self.period)
        assert earliest is not None, "a rotation repeats with its own period"
        return earliest


def least_period(graph: FamilyGraph, step: int) -> int:
    """A lower bound: the work, and a round from an operation back to itself (memory gives it back no sooner)."""
    bound = step * max(graph.work_per_microbatch)
    for before, after, shift, lag in graph.implied:
        chain = graph.path(after, before)
        if chain is not None and shift:
            bound = max(bound, -(-step * (chain + lag) // shift))
    return bound


class _Modulo:
    """Is there a rotation with this period?

    Variables: the starts, the first family's first at 0. Of two operations on one machine, ``b`` starts ``turns`` whole periods,
    and a rest that leaves room for both, after ``a`` does; one literal per number of periods that is possible says whether it is
    as many at least, an order of two operations of the unrolled schedule. Copies of ``a`` that have begun when ``b`` starts are
    ``turns`` more than those of ``b``: so what a device holds when a claim begins is a sum of these numbers. ``near`` is a hint;
    with ``reach`` all numbers are to be no further than that from its own.
    """

    def __init__(self, graph: FamilyGraph, period: int, step: int, near: Rotation | None, reach: int | None) -> None:
        self.graph, self.period, self.step = graph, period, step
        self.near = None if near is None else [time for row in near.start for time in row.tolist()]
        self.of_near, self.reach = 1 if near is None else near.period, reach
        self.model = cp_model.CpModel()
        steps = range(step)
        self.most = 3 + 2 * (sum(graph.duration) + sum(edge.lag for edge in graph.precedences)) // period
        relations = self._relations()
        apart = _apart(relations, step * len(graph.families))
        self.possible = apart is not None
        if apart is None:
            return
        self.apart = apart
        horizon = self.most * period
        self.start = [self.model.new_int_var(0, horizon, f"{family}({k})") for family in graph.families for k in steps]
        self.model.add(self.start[0] == 0)
        for before, after, lag in relations:
            waits(self.model, self.start[before], self.start[after], lag)
        self.turns: dict[tuple[int, int], Any] = {}
        for x, time in zip(self.start, self.near or (), strict=False):
            self.model.add_hint(x, time)
        for _, families in graph.machines:
            for a, b in combinations([o * step + k for o in families for k in steps], 2):
                self._apart(a, b)
        for room in graph.reservoirs:
            if not room.simple and room.held:
                self._room(room)

    def _relations(self) -> list[tuple[int, int, int]]:
        """``start[after] >= start[before] + wait``: families in order, data, and what follows from memory limits."""
        graph, step, period = self.graph, self.step, self.period
        in_order = [Precedence(o, o, 1, 0) for o in range(len(graph.families))]
        found = []
        for before, after, shift, lag in (*in_order, *graph.precedences, *graph.implied):
            for k in range(step):
                turns, copy = divmod(k - shift, step)
                found.append((before * step + copy, after * step + k, graph.duration[before] + lag + turns * period))
        return found

    def _apart(self, a: int, b: int) -> None:
        """The two do not overlap in any turn."""
        if (a, b) in self.turns:
            return
        period, own, other = self.period, *(self.graph.duration[x // self.step] for x in (a, b))
        if a // self.step == b // self.step:  # in order, and within a period
            self.turns[a, b], self.turns[b, a] = 0, -1
            return
        low = max(-self.most, -((period - other - int(self.apart[a, b])) // period))
        high = min(self.most, (-int(self.apart[b, a]) - own) // period)
        near = None if self.near is None else (self.near[b] - self.near[a]) // self.of_near
        if near is not None and self.reach is not None:
            low, high = max(low, near - self.reach), min(high, near + self.reach)
        self.possible &= low <= high
        behind = self.start[b] - self.start[a]
        self.model.add_linear_constraint(behind, low * period + own, (high + 1) * period - other)
        as_many = [self.model.new_bool_var("") for _ in range(low, high)]
        for turns, literal in enumerate(as_many, start=low + 1):
            self.model.add(behind >= turns * period + own).only_enforce_if(literal)
            self.model.add(behind <= turns * period - other).only_enforce_if(~literal)
            if near is not None:
                self.model.add_hint(literal, turns <= near)
        for less, more in pairwise(as_many):
            self.model.add_implication(more, less)
        self.turns[a, b] = low + sum(as_many)
        self.turns[b, a] = -1 - self.turns[a, b]

    def _room(self, room: Reservoir) -> None:
        """What is held when a claim begins, of every pair the copies that have begun and are not over."""
        steps = range(self.step)
        for claim in (o * self.step + k for o in sorted({held.first for held in room.held}) for k in steps):
            now: Any = 0
            for held in room.held:
                for first, last in ((held.first * self.step + k, held.last * self.step + k) for k in steps):
                    begun = 0 if first == claim else self.turns[first, claim]
                    now += held.amount * (begun - self.turns[last, claim])
            self.model.add(now <= room.limit)

    def found(self, solution: Solution) -> Rotation:
        """What a search has found."""
        flat = np.array([solution.value(x) for x in self.start], dtype=np.int64)
        return Rotation(self.graph, self.period, tuple(flat.reshape(-1, self.step)))


def _apart(relations: Sequence[tuple[int, int, int]], size: int) -> IntArray | None:
    """``[a, b]``: how long after ``a`` at least ``b`` starts, by any path; ``None``: some operation waits for itself."""
    longest = np.full((size, size), NEVER, dtype=np.int64)
    np.fill_diagonal(longest, 0)
    for before, after, wait in relations:
        longest[before, after] = max(longest[before, after], wait)
    for through in range(size):
        if longest[through, through] > 0:
            return None
        np.maximum(longest, longest[:, through, None] + longest[through], out=longest)
    return None if longest.diagonal().any() else longest


def rotation(
    graph: FamilyGraph,
    period: int,
    step: int,
    limits: Limits,
    seconds: float,
    near: Rotation | None = None,
    reach: int | None = None,
) -> tuple[Rotation | None, bool]:
    """A rotation with this period, and whether the answer is certain (a found one is, and a refuted one).

    ``seconds``: most for the search. ``near``: one of as many microbatches to begin it with. With ``reach`` only such rotations
    are meant in which operations that share a machine are at most ``reach`` turns more or less apart than there.
    """
    if period < max(1, step * max(graph.work_per_microbatch)):
        return None, True
    model = _Modulo(graph, period, step, near, reach)
    limits.clock.charge(_PATH * (step * len(graph.families)) ** 3)
    if not model.possible:
        return None, True
    # presolve takes longer than the search, relaxations help
    answer = engine.search(model.model, limits, engine.SMALL_RELAXED, seconds=seconds)
    return (model.found(answer), True) if answer.found else (None, answer.certain)
