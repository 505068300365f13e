"""A periodic schedule made shorter, operation by operation around where it is, with CP-SAT."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from ortools.sat.python import cp_model

from ppopt.constraints import FamilyGraph
from ppopt.periodic.budget import Budget
from ppopt.periodic.periodic import Periodic, relations
from ppopt.periodic.recurrence import post_memory


def polished(periodic: Periodic, budget: Budget, *, reach: int, seconds: float, lower: int = 0) -> tuple[Periodic, bool]:
    """The best schedule with every start within ``reach`` ticks of where it is, and whether that is certain.

    The blocks keep their operations; within each of a device's blocks the order is free. Valid for every number of copies,
    as :class:`Periodic` says. ``lower`` is a bound of the makespan below which nothing is to be found.
    """
    graph, step, period = periodic.graph, periodic.step, periodic.period
    model = cp_model.CpModel()
    horizon = periodic.makespan
    start: list[list[cp_model.IntVar]] = []
    for family, row, time in zip(graph.families, periodic.start, graph.duration, strict=True):
        low, high = np.maximum(row - reach, 0).tolist(), np.minimum(row + reach, horizon - time).tolist()
        start.append([model.new_int_var(a, b, f"{family}({n})") for n, (a, b) in enumerate(zip(low, high, strict=True))])
    for _, families in graph.machines:
        _blocks(model, graph, periodic, families, start, horizon)
    flat = [x for row in start for x in row]
    relation = relations(graph, tuple(map(len, start)), periodic.first, step)
    for before, after, turns, lag in zip(*(column.tolist() for column in relation), strict=True):
        model.add(flat[after] + turns * period >= flat[before] + lag)
    for variables, time in zip(start, graph.duration, strict=True):
        for a, b in pairwise(variables):
            model.add(b >= a + time)
    post_memory(model, graph, start, horizon)
    makespan = model.new_int_var(lower, horizon, "makespan")
    for variables, time in zip(start, graph.duration, strict=True):
        model.add(makespan >= variables[-1] + time)
    model.minimize(makespan)
    for variables, times in zip(start, periodic.start, strict=True):
        for x, when in zip(variables, times.tolist(), strict=True):
            model.add_hint(x, when)
    solver, sure = budget.solve(model, seconds)
    if solver is None:
        return periodic, False
    rows = tuple(np.array([solver.value(x) for x in row], dtype=np.int64) for row in start)
    return Periodic(graph, rows, periodic.first, period, step), sure


def _blocks(
    model: cp_model.CpModel,
    graph: FamilyGraph,
    periodic: Periodic,
    families: tuple[int, ...],
    start: list[list[cp_model.IntVar]],
    horizon: int,
) -> None:
    """A device runs its blocks one after the other, the second within a period."""
    begin, over = (model.new_int_var(0, horizon, f"period {name}") for name in ("begins", "is over"))
    model.add(over <= begin + periodic.period)
    for block in range(3):
        intervals = []
        for o in families:
            time, first = graph.duration[o], periodic.first[o]
            last = first + periodic.step
            for x in (start[o][:first], start[o][first:last], start[o][last:])[block]:
                intervals.append(model.new_fixed_size_interval_var(x, time, ""))
                if block:
                    model.add(x >= (begin, over)[block - 1])
                if block < 2:
                    model.add(x + time <= (begin, over)[block])
        model.add_no_overlap(intervals)
