"""A small schedule whose state comes back after a period, as a CP-SAT decision model: prologue, kernel and epilogue at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from ppopt.clock import Limits
from ppopt.constraints import FamilyGraph
from ppopt.cpsat import engine
from ppopt.cpsat.posting import Row, families, machine_of, reservoirs
from ppopt.cpsat.running import Solution
from ppopt.periodic.periodic_schedule import PeriodicSchedule
from ppopt.pipeline import IntArray

_WAYS = (engine.SMALL, engine.SMALL_RELAXED, engine.SMALL_PRESOLVED)
"""The ways of searching: those that find most come first."""


@dataclass(frozen=True)
class Question:
    """Is there a schedule of ``counts`` microbatches per route and this makespan that repeats ``unroll`` every ``period``?"""

    counts: tuple[int, ...]
    makespan: int
    period: int
    unroll: int = 1


class PeriodicModel:
    """The model of a :class:`Question`; the answer is a periodic schedule.

    The state at ``cut + period`` is that at ``cut``, ``unroll`` microbatches further: ``unroll`` more operations of every family
    have started, and what is still running, or on its way over a link, is no later than it was at ``cut``. Then the operations
    that start in between are a kernel.

    Variables: the start of every operation, in order within its family, and where its range straddles the cut a literal
    that it starts at the cut or later. That it starts a period later still is the literal of the operation ``unroll``
    microbatches before. ``within`` are ranges of starts to search (per family, by microbatch). With ``objective`` the makespan is
    minimised below the question's, which else is asked for.
    """

    def __init__(
        self,
        graph: FamilyGraph,
        question: Question,
        *,
        within: Sequence[tuple[IntArray, IntArray]] | None = None,
        objective: bool = False,
        slack: int = 0,
    ) -> None:
        self.graph, self.question = graph, question
        self.cut = max(0, (question.makespan - question.period) // 2)
        self.count = tuple(question.counts[family.route] for family in graph.families)
        self.model = cp_model.CpModel()
        self.possible = min(self.count) >= question.unroll
        self.start: list[list[cp_model.IntVar]] = []
        self._range = within or start_ranges(graph, self.count, question.makespan)
        if any((low > high).any() for low, high in self._range):
            self.possible = False
        if not self.possible:
            return
        for family, (low, high) in zip(graph.families, self._range, strict=True):
            self.start.append(
                [
                    self.model.new_int_var(a, b, f"{family}({n})")
                    for n, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True))
                ]
            )
        rows = [Row(variables, time) for variables, time in zip(self.start, graph.duration, strict=True)]
        families(self.model, graph, rows)
        for _, own in graph.machines:
            machine_of(self.model, [rows[o] for o in own])
        reservoirs(self.model, graph, rows, question.makespan)
        self._state()
        if slack:
            self._slack(slack)
        self.objective: cp_model.IntVar | None = None
        if objective:
            self.objective = self.model.new_int_var(0, question.makespan, "makespan")
            for row, time in zip(self.start, graph.duration, strict=True):
                self.model.add(self.objective >= row[-1] + time)
            self.model.minimize(self.objective)

    def _state(self) -> None:
        """The state after the period is the state before it, ``unroll`` microbatches further."""
        model, unroll = self.model, self.question.unroll
        cut, again = self.cut, self.cut + self.question.period
        reach = [0] * len(self.start)
        for precedence in self.graph.precedences:
            reach[precedence.before] = max(reach[precedence.before], precedence.lag)
        self._passed: list[list[Any]] = []
        for o, row in enumerate(self.start):
            low, high = (column.tolist() for column in self._range[o])
            last = self.graph.duration[o] + reach[o]
            passed: list[Any] = []
            for n, x in enumerate(row):
                if n < unroll:
                    model.add(x <= again - max(last, 1))
                if n >= len(row) - unroll:
                    model.add(x >= cut)
                    passed.append(True)
                    continue
                later = row[n + unroll]
                if low[n] >= cut or low[n + unroll] >= again:
                    model.add(x >= cut)
                    model.add(later >= again)
                    passed.append(True)
                elif high[n] < cut or high[n + unroll] < again:
                    model.add(x < cut)
                    model.add(later < again)
                    self._no_later(x, later, again, last, high[n + unroll])
                    passed.append(False)
                else:
                    literal = model.new_bool_var("")
                    model.add(x >= cut).only_enforce_if(literal)
                    model.add(x < cut).only_enforce_if(~literal)
                    model.add(later >= again).only_enforce_if(literal)
                    model.add(later < again).only_enforce_if(~literal)
                    self._no_later(x, later, again, last, high[n + unroll], literal)
                    passed.append(literal)
            self._passed.append(passed)

    def _slack(self, slack: int) -> None:
        """Between the repeated operations, and only there, every way to another device takes ``slack`` longer."""
        unroll, period = self.question.unroll, self.question.period
        place: list[list[cp_model.IntVar]] = []
        for family, row, passed in zip(self.graph.families, self.start, self._passed, strict=True):
            most = len(row) * period
            place.append([self.model.new_int_var(-most, self.question.makespan, f"place of {family}") for _ in range(unroll)])
            for n, x in enumerate(row):
                conditions = [passed[n], *([] if n < unroll else [_not(passed[n - unroll])])]
                if False not in [c for c in conditions if isinstance(c, bool)]:
                    same = self.model.add(place[-1][n % unroll] == x - n // unroll * period)
                    same.only_enforce_if([c for c in conditions if not isinstance(c, bool)])
        device = self.graph.owner
        for before, after, shift, lag in self.graph.precedences:
            if device[before] != device[after] and not shift:
                for a, b in zip(place[before], place[after], strict=True):
                    self.model.add(b >= a + (self.graph.duration[before] + lag + slack))

    def _no_later(
        self, x: cp_model.IntVar, later: cp_model.IntVar, again: int, last: int, high: int, passed: cp_model.IntVar | None = None
    ) -> None:
        """``later``, begun before the second cut, is over by then or ends no later than ``x`` did before the first."""
        if last <= 1 or high <= again - last:
            return
        over = self.model.new_bool_var("")
        self.model.add(later <= again - last).only_enforce_if(over)
        condition = self.model.add(later <= x + self.question.period)
        condition.only_enforce_if(~over if passed is None else [~over, ~passed])

    def hint(self, start: Sequence[IntArray]) -> None:
        """Suggest these starts."""
        for row, times in zip(self.start, start, strict=True):
            for x, time in zip(row, times.tolist(), strict=True):
                self.model.add_hint(x, time)

    def found(self, solution: Solution) -> PeriodicSchedule:
        """What the search has found."""
        rows = tuple(np.array([solution.value(x) for x in row], dtype=np.int64) for row in self.start)
        prologue = tuple(int(np.searchsorted(row, self.cut)) for row in rows)
        return PeriodicSchedule(self.graph, rows, prologue, self.question.period, self.question.unroll)


def start_ranges(graph: FamilyGraph, count: Sequence[int], makespan: int) -> list[tuple[IntArray, IntArray]]:
    """Per family the earliest and the latest starts by microbatch, from the edges and the order of each family alone."""
    rows = range(len(graph.families))
    time = graph.duration
    into: list[list[tuple[int, int, int]]] = [[] for _ in rows]
    out_of: list[list[tuple[int, int, int]]] = [[] for _ in rows]
    for before, after, shift, lag in (*graph.precedences, *graph.implied):
        into[after].append((before, shift, time[before] + lag))
        out_of[before].append((after, shift, time[before] + lag))
    low: list[list[int]] = [[0] * n for n in count]
    high: list[list[int]] = [[makespan - time[o]] * n for o, n in enumerate(count)]
    for n in range(max(count)):
        for o in rows:
            if n < count[o]:
                least = low[o][n - 1] + time[o] if n else 0
                for before, shift, lag in into[o]:
                    if n >= shift:
                        least = max(least, low[before][n - shift] + lag)
                low[o][n] = least
    for n in reversed(range(max(count))):
        for o in reversed(rows):
            if n < count[o]:
                most = high[o][n + 1] - time[o] if n + 1 < count[o] else high[o][n]
                for after, shift, lag in out_of[o]:
                    if n + shift < count[after]:
                        most = min(most, high[after][n + shift] - lag)
                high[o][n] = most
    return [(np.array(a, dtype=np.int64), np.array(b, dtype=np.int64)) for a, b in zip(low, high, strict=True)]


def search_model(model: PeriodicModel, limits: Limits, seconds: float) -> tuple[PeriodicSchedule | None, bool]:
    """What a search of ``seconds`` has found, and whether it shows that there is nothing to be found.

    Raises:
        KeyboardInterrupt: a signal came before the search.
    """
    if not model.possible:
        return None, True
    answer = engine.in_every_way(model.model, limits, _WAYS, seconds)
    return (model.found(answer), True) if answer.found else (None, answer.certain)


def _not(literal: Any) -> Any:
    return not literal if isinstance(literal, bool) else ~literal
