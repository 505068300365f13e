"""A periodic schedule made shorter, operation by operation around where it is, with CP-SAT."""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from ppopt.clock import Limits
from ppopt.constraints import FamilyGraph
from ppopt.cpsat import engine
from ppopt.cpsat.posting import Row, in_order, interval, machine, precedence, reservoirs, waits
from ppopt.cpsat.running import Known
from ppopt.periodic.periodic_schedule import PeriodicSchedule, block_precedences


def locally_improved(
    periodic: PeriodicSchedule, limits: Limits, *, reach: int, seconds: float, lower: int = 0
) -> tuple[PeriodicSchedule, bool]:
    """The best schedule with every start within ``reach`` ticks of where it is, and whether that is certain.

    Prologue, kernel and epilogue keep their operations; within each of a device's blocks the order is free. Valid for every
    number of kernels, as :class:`PeriodicSchedule` says. ``lower`` is a bound of the makespan below which nothing is to be found,
    ``seconds`` the most for the search.

    Raises:
        KeyboardInterrupt: a signal came before the search.
    """
    graph, period = periodic.graph, periodic.period
    model = cp_model.CpModel()
    horizon = periodic.makespan
    start: list[list[cp_model.IntVar]] = []
    for family, times, time in zip(graph.families, periodic.start, graph.duration, strict=True):
        low, high = np.maximum(times - reach, 0).tolist(), np.minimum(times + reach, horizon - time).tolist()
        start.append([model.new_int_var(a, b, f"{family}({n})") for n, (a, b) in enumerate(zip(low, high, strict=True))])
    for _, families in graph.machines:
        _blocks(model, graph, periodic, families, start, horizon)
    flat = [x for row in start for x in row]
    blocks = block_precedences(graph, tuple(map(len, start)), periodic.prologue, periodic.unroll)
    for before, after, distance, lag in zip(*(column.tolist() for column in blocks), strict=True):
        waits(model, flat[before], flat[after], lag - distance * period)
    rows = [Row(variables, time) for variables, time in zip(start, graph.duration, strict=True)]
    for row in rows:
        in_order(model, row)
    for before, after, shift, lag in graph.implied:
        precedence(model, rows[before], rows[after], shift, lag)
    reservoirs(model, graph, rows, horizon)
    makespan = model.new_int_var(lower, horizon, "makespan")
    for variables, time in zip(start, graph.duration, strict=True):
        model.add(makespan >= variables[-1] + time)
    model.minimize(makespan)
    for variables, known in zip(start, periodic.start, strict=True):
        for x, when in zip(variables, known.tolist(), strict=True):
            model.add_hint(x, when)
    answer = engine.search(model, limits, engine.SMALL, seconds=seconds)
    if not answer.found:
        return periodic, False
    found = tuple(np.array([answer.value(x) for x in row], dtype=np.int64) for row in start)
    return PeriodicSchedule(graph, found, periodic.prologue, period, periodic.unroll), answer.known is Known.BEST


def _blocks(
    model: cp_model.CpModel,
    graph: FamilyGraph,
    periodic: PeriodicSchedule,
    families: tuple[int, ...],
    start: list[list[cp_model.IntVar]],
    horizon: int,
) -> None:
    """A device runs prologue, kernel and epilogue one after the other, the kernel within a period."""
    begin, over = (model.new_int_var(0, horizon, f"kernel {name}") for name in ("begins", "is over"))
    model.add(over <= begin + periodic.period)
    for block in range(3):
        intervals = []
        for o in families:
            time, kernel = graph.duration[o], periodic.prologue[o]
            epilogue = kernel + periodic.unroll
            for x in (start[o][:kernel], start[o][kernel:epilogue], start[o][epilogue:])[block]:
                intervals.append(interval(model, x, time))
                if block:
                    model.add(x >= (begin, over)[block - 1])
                if block < 2:
                    model.add(x + time <= (begin, over)[block])
        machine(model, intervals)
