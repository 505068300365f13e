"""The window certificate: idle time that every schedule has in its first and last ticks, whatever the number of microbatches."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from ppopt.bounds.bound import Bound, Objective, check_objective
from ppopt.bounds.closed_form import makespan_of
from ppopt.bounds.heads import heads
from ppopt.bounds.late import latest_first_starts
from ppopt.bounds.searching import race
from ppopt.constraints import FamilyGraph, Reservoir, pairs_save_time, relaxed_graphs
from ppopt.pipeline import IntArray, Pipeline

MAX_OPERATIONS = 20_000
"""Windows with more operations are not tried: posting them alone takes seconds, and no proof comes of it."""


def window(
    pipeline: Pipeline,
    first: int,
    last: int,
    objective: Objective = "makespan",
    *,
    makespan: int,
    known: int = 0,
    target: int | None = None,
    grain: int = 1,
    pairs: bool = False,
    time_limit: float = 10.0,
    workers: int = 1,
    seed: int = 0,
    deterministic: bool = False,
) -> Bound | None:
    """What the ``first`` and the ``last`` ticks imply, by one CP-SAT model of both.

    *Model.* The start window [0, first) of an in-order schedule: operations that start in it, those of a family in
    order, after their predecessors and latencies, no two at once on a device, memory from an empty start; what is not
    released by operations of the window is held to its end. ``i_d`` is the idle time of device d in it; an operation
    that straddles the edge counts with its part. The end window is the same on the reversed pipeline, with idle time
    ``j_d``. Minimise ``X = max over d of (work_d + i_d + j_d)``. For the device span, idle time counts from the device's own
    first start and to its own last end, which are no later (earlier) than :mod:`ppopt.bounds.late` proves to be enough; a device
    that does all it does in one of the windows is left out.

    *Claim.* The objective is at least X if ``first + last <= makespan``, where ``makespan`` is a proved lower bound of the
    makespan (whatever the objective). For then the windows are disjoint in every schedule, its operations are a feasible
    point of both with its own idle times, and what a device takes is its work plus its idle time. For the makespan, links and,
    where transfers block, a device with a link count as devices. Without that condition the claim is false, and so is
    ``makespan >= min(first + last, X)``: with one microbatch and windows as long as the schedule, idle time counts twice.
    For the device span the schedules are those of the graph, shifted, so no more than its own makespan counts (:func:`of_graph`).

    The value is the solver's proved bound of X, so it holds when the time runs out too; ``known`` is a proved bound of the
    objective to start from, and the least that comes back. ``target``: no more is asked for; the solver looks for windows
    with X below it, and if there are none the bound is ``target``. ``grain``: in the constraints starts are counted in units
    of that many ticks, rounded down, and durations are rounded down (what does not overlap in a schedule does not after
    that); the work keeps its true ticks. Coarser is faster and weaker.

    Valid for every pipeline: all routes, uneven durations, latencies, links, memory, few microbatches (for the device span a
    transfer is a mere delay). ``pairs``: also for schedules with overlapped pairs. ``None``: where a window is below ``grain`` or
    both are more than ``makespan``, or hold more than ``MAX_OPERATIONS``. ``time_limit`` is in seconds, of deterministic time
    with ``deterministic``. With two ``workers`` or more two solvers race, with and without presolve.
    """
    check_objective(objective)
    begun = time.monotonic()
    graph = relaxed_graphs(pipeline, pairs, links=objective == "makespan")[0]
    graph = graph if objective == "makespan" else graph.computing()
    makespan = of_graph(makespan, graph, pipeline, objective, pairs)
    if min(first, last) < grain or first + last > makespan:
        return None
    from ortools.sat.python import cp_model

    windows = [(of, length // grain, heads(of, memory=True)) for of, length in ((graph, first), (graph.reversed(), last))]
    if sum(int((head < units * grain).sum()) for _, units, earliest in windows for head in earliest) > MAX_OPERATIONS:
        return None
    model = cp_model.CpModel()
    base = max(graph.work)
    known = max(known, base)
    if target is None or target <= known:
        target = known + first + last + 1  # more than any X
    idle = model.new_int_var(known - base, target - 1 - base, "X")
    sides = [_side(model, of, earliest, units, grain, own=objective == "span") for of, units, earliest in windows]
    for work, *both in zip(graph.work, *sides, strict=True):
        within = [done for _, done in both if done is not None]
        model.add(idle >= work - base + sum(left for left, _ in both)).only_enforce_if([~done for done in within])
    model.minimize(idle)
    solvers = [cp_model.CpSolver() for _ in range(1 if deterministic else min(2, workers))]
    for place, solver in enumerate(solvers):
        solver.parameters.num_workers = 1  # measured: often ten times faster than two that share what they find
        solver.parameters.random_seed = seed
        solver.parameters.linearization_level = 0  # the relaxations of intervals cost far more than they bring here
        solver.parameters.use_new_integer_conflict_resolution = True
        solver.parameters.cp_model_probing_level = 0  # takes longer than the rest of presolve, and seldom helps
        solver.parameters.cp_model_presolve = not place  # now the one, now the other is by far the faster
        if deterministic:
            solver.parameters.max_deterministic_time = time_limit
        else:
            solver.parameters.max_time_in_seconds = max(0.0, time_limit - (time.monotonic() - begun))
    statuses = run(solvers, model)
    least = max(round(solver.best_objective_bound) for solver in solvers)
    proved = target if "INFEASIBLE" in statuses else max(known, base + least)
    proof = f"work {base} and {proved - base} idle in the first {first} and the last {last} ticks"
    if objective == "span":
        proof += ", transfers as mere delays" * bool(pipeline.lines) + ", without traffic" * pipeline.ticks.traffic
    return Bound(proved, "window certificate", proof, exact="OPTIMAL" in statuses)


def of_graph(makespan: int, graph: FamilyGraph, pipeline: Pipeline, objective: Objective, pairs: bool) -> int:
    """What of a bound of the pipeline's makespan is one of the schedules that a window speaks of.

    Where these are the graph's own (device span), and other graphs or links gave the bound, it may be too much for them.
    """
    if objective == "span" and (pipeline.lines or pipeline.ticks.traffic or (pairs and pairs_save_time(pipeline))):
        return min(makespan, makespan_of(graph.computing()))
    return makespan


def run(solvers: Sequence[Any], model: Any) -> list[str]:
    """Solve until the first has ended, and name the statuses; a Ctrl-C stops the search and is raised again.

    Raises:
        RuntimeError: a solver refused the model.
    """
    statuses, interrupted = race(solvers, model)
    if interrupted:
        raise KeyboardInterrupt
    names = [solver.status_name(status) for solver, status in zip(solvers, statuses, strict=True)]
    if "MODEL_INVALID" in names:
        raise RuntimeError("CP-SAT refused the model of a bound")
    return names


def _side(model: Any, graph: FamilyGraph, head: Sequence[IntArray], units: int, grain: int, own: bool) -> list[tuple[Any, Any]]:
    """Post the start window [0, units) of ``graph``, in units of ``grain`` ticks; per device its idle ticks, as an expression.

    ``head`` are the earliest starts. With ``own`` idle ticks count from the device's own first start, and a literal comes with
    them that is true where all its operations start in the window (``None``: they cannot): then it may end in it too, and what
    is behind its end is not idle time.
    """
    edge = units * grain
    start: list[list[Any]] = []
    present: list[list[Any]] = []
    for family, earliest in enumerate(head):
        starts, literals = [], []
        for n, least in enumerate(earliest[earliest < edge].tolist()):
            starts.append(model.new_int_var(least // grain, units, f"{graph.label[family]}{n}"))
            literals.append(model.new_bool_var(f"{graph.label[family]}{n} starts"))
            model.add(starts[n] < units).only_enforce_if(literals[n])
            model.add(starts[n] == units).only_enforce_if(~literals[n])
        start.append(starts)
        present.append(literals)
    orders = [(family, family, 1, 0) for family in range(len(start))]
    coarse = graph.rounded_down(grain)
    for before, after, shift, lag in (*orders, *coarse.precedences, *coarse.implied):
        wait = coarse.duration[before] + lag
        for n in range(shift, len(start[after])):
            if n - shift < len(start[before]):
                model.add_implication(present[after][n], present[before][n - shift])
                model.add(start[after][n] >= start[before][n - shift] + wait).only_enforce_if(present[after][n])
            else:
                model.add(present[after][n] == 0)
    latest = latest_first_starts(graph) if own else []
    idle = []
    for device, (_, families) in enumerate(graph.machines):
        intervals = []
        over = model.new_int_var(0, max((graph.duration[family] for family in families), default=0), f"over the edge {device}")
        spent: Any = 0
        for family in families:
            ticks = graph.duration[family]
            for begin, literal in zip(start[family], present[family], strict=True):
                intervals.append(model.new_optional_fixed_size_interval_var(begin, coarse.duration[family], literal, ""))
                model.add(over >= grain * begin + ticks - edge).only_enforce_if(literal)
                spent += ticks * literal
        model.add_no_overlap(intervals)
        left = edge - spent + over
        if own:
            most = latest[device]
            begin = model.new_int_var(0, units if most is None else min(units, most // grain), f"begin {device}")
            for family in families:
                for variable in start[family][:1]:
                    model.add(begin <= variable)
            left -= grain * begin + grain - 1  # no more than the ticks before it
        else:
            model.add(left >= 0)
        done = None
        if own and all(len(present[family]) == graph.count[family] for family in families):
            done = model.new_bool_var(f"all of {device} start")
            model.add_bool_or([done, *(~present[family][-1] for family in families)])
            for family in families:
                model.add_implication(done, present[family][-1])
        idle.append((left, done))
    for reservoir in graph.reservoirs:
        _memory(model, coarse, reservoir, start, present, units)
    return idle


def _memory(
    model: Any,
    graph: FamilyGraph,
    reservoir: Reservoir,
    start: Sequence[Sequence[Any]],
    present: Sequence[Sequence[Any]],
    units: int,
) -> None:
    """The memory of a device; nothing where precedences say it all (one stage, released at once)."""
    if reservoir.simple:
        return
    intervals, amounts = [], []
    for first, last, amount in reservoir.held:
        for n, (variable, literal) in enumerate(zip(start[first], present[first], strict=True)):
            latest = units + graph.duration[last]
            end = model.new_int_var(0, latest, "")
            if n < len(start[last]):
                model.add(end >= start[last][n] + graph.duration[last]).only_enforce_if(present[last][n])
                model.add(end >= units).only_enforce_if(~present[last][n])
            else:
                model.add(end >= units)
            size = model.new_int_var(0, latest, "")
            intervals.append(model.new_optional_interval_var(variable, size, end, literal, ""))
            amounts.append(amount)
    unit = math.gcd(*amounts)
    if unit:
        model.add_cumulative(intervals, [amount // unit for amount in amounts], reservoir.limit // unit)
