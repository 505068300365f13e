"""The smallest period: modulo scheduling with CP-SAT, without beginning or end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from ppopt.pipeline import IntArray
from ppopt.solvers.repetition.budget import Budget
from ppopt.solvers.repetition.pattern import Pattern, Room
from ppopt.solvers.repetition.periodic import Periodic, retimed


@dataclass(frozen=True, eq=False)
class Rotation:
    """A periodic schedule without ends: ``step`` microbatches per ``period``; per family its ``step`` starts, from 0."""

    pattern: Pattern
    period: int
    start: tuple[IntArray, ...]

    @property
    def step(self) -> int:
        """Microbatches of every route per period."""
        return len(self.start[0])

    def begun(self, counts: Sequence[int]) -> Periodic:
        """The rotation with a beginning and an end, for as few microbatches as that takes; every operation as early as can be.

        So many that ``counts`` per route differ from them by a whole number of periods.
        """
        cut = max(int(row[0]) for row in self.start)  # by then every family has begun
        first = tuple(int((-(-(cut - row) // self.period)).clip(0).sum()) for row in self.start)
        copies = min(
            (counts[family.route] - done) // self.step - 1 for family, done in zip(self.pattern.families, first, strict=True)
        )
        rows = []
        for family, row in zip(self.pattern.families, self.start, strict=True):
            turns, index = np.divmod(np.arange(counts[family.route] - copies * self.step), self.step)
            rows.append(row[index] + turns * self.period)
        periodic = Periodic(self.pattern, tuple(rows), first, self.period, self.step)
        earliest = retimed(periodic, self.pattern, self.period)
        assert earliest is not None, "a rotation repeats with its own period"
        return earliest


def least_period(pattern: Pattern, step: int) -> int:
    """A lower bound: the work, and a round from an operation back to itself (memory gives it back no sooner)."""
    bound = step * max(pattern.work)
    for before, after, shift, lag in pattern.arcs:
        chain = pattern.chain(after, before)
        if chain is not None and shift:
            bound = max(bound, -(-step * (chain + lag) // shift))
    return bound


class _Modulo:
    """Is there a rotation with this period?

    Variables: starts in ``[0, turns * period)``, each ``turn * period + place`` after the offset of its device (and of its link);
    a machine begins a turn with the first operation of its first family, so that no operation lies across the end of a turn.
    Whatever starts finds held, of every pair, ``amount * (turns between its first and last, corrected by who comes first within
    the turn)``.
    """

    def __init__(self, pattern: Pattern, period: int, step: int, turns: int, slack: int) -> None:
        self.pattern, self.period, self.step = pattern, period, step
        self.model = cp_model.CpModel()
        self.horizon = turns * period
        add, time = self.model.add, pattern.duration
        self.start = [
            [self.model.new_int_var(0, self.horizon, f"{family}({k})") for k in range(step)] for family in pattern.families
        ]
        for row, long in zip(self.start, time, strict=True):
            for a, b in pairwise(row):
                add(b >= a + long)
            add(row[0] + period >= row[-1] + long)
        for before, after, shift, lag in (*pattern.edges, *pattern.arcs):
            if pattern.device_of[before] != pattern.device_of[after]:
                lag += slack
            for k, b in enumerate(self.start[after]):
                turns_back, index = divmod(k - shift, step)
                add(b >= self.start[before][index] + (turns_back * period + time[before] + lag))
        self.turn: dict[tuple[int, int], cp_model.IntVar] = {}
        self.place: dict[tuple[int, int], cp_model.IntVar] = {}
        for families in pattern.machines:
            self._machine(families, turns)
        for room in pattern.rooms:
            if not room.alone and room.held:
                self._room(room)

    def _machine(self, families: tuple[int, ...], turns: int) -> None:
        if not families:
            return
        offset = self.model.new_int_var(0, self.period - 1, "offset")
        intervals = []
        for o in families:
            long = self.pattern.duration[o]
            for k, start in enumerate(self.start[o]):
                first = o == families[0] and k == 0
                place = self.model.new_int_var(0, 0 if first else self.period - long, "place")
                turn = self.model.new_int_var(-1, turns, "turn")
                self.model.add(start == self.period * turn + place + offset)
                self.place.setdefault((o, k), place)  # of the device, which memory is counted by
                self.turn.setdefault((o, k), turn)
                intervals.append(self.model.new_fixed_size_interval_var(place, long, ""))
        self.model.add_no_overlap(intervals)

    def _room(self, room: Room) -> None:
        ends = {o for held in room.held for o in (held.first, held.last)}
        ops = [(o, k) for o in sorted(ends) for k in range(self.step)]
        behind: dict[tuple[tuple[int, int], tuple[int, int]], Any] = {}
        for i, a in enumerate(ops):
            for b in ops[i + 1 :]:
                later = self.model.new_bool_var("")
                self.model.add(self.place[b] >= self.place[a] + self.pattern.duration[a[0]]).only_enforce_if(later)
                self.model.add(self.place[a] >= self.place[b] + self.pattern.duration[b[0]]).only_enforce_if(~later)
                behind[b, a], behind[a, b] = later, 1 - later
        between: Any = sum(
            held.amount * (self.turn[held.last, k] - self.turn[held.first, k]) for held in room.held for k in range(self.step)
        )
        for event in ((o, k) for o in sorted({held.first for held in room.held}) for k in range(self.step)):
            corrected: Any = sum(
                held.amount
                * ((1 if (held.first, k) == event else behind[event, (held.first, k)]) - behind[event, (held.last, k)])
                for held in room.held
                for k in range(self.step)
            )
            self.model.add(between + corrected <= room.limit)

    def found(self, solver: cp_model.CpSolver) -> Rotation:
        rows = [np.array([solver.value(x) for x in row], dtype=np.int64) for row in self.start]
        return Rotation(self.pattern, self.period, tuple(rows))


def rotation(
    pattern: Pattern, period: int, step: int, budget: Budget, seconds: float, slack: int = 0
) -> tuple[Rotation | None, bool]:
    """A rotation with this period, and whether the answer is certain (a found one is, and a refuted one).

    Every way to another device takes ``slack`` longer than it must.
    """
    if period < max(1, step * max(pattern.work)):
        return None, True
    whole = sum(pattern.duration) + sum(edge.lag + slack for edge in pattern.edges)
    model = _Modulo(pattern, period, step, 2 + 2 * whole // period, slack)
    solver, sure = budget.solve(model.model, seconds)
    return (None, sure) if solver is None else (model.found(solver), True)
