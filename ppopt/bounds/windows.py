"""The window certificate: idle time that every schedule has in its first and last ticks, whatever the number of microbatches.

*Model.* The start window [0, first) of an in-order schedule: operations that start in it, those of a family in
order, after their predecessors and latencies, no two at once on a device, memory from an empty start; what is not
released by operations of the window is held to its end. ``i_d`` is the idle time of device d in it; an operation
that straddles the edge counts with its part. The end window is the same on the reversed pipeline, with idle time
``j_d``. Minimise ``X = max over d of (work_d + i_d + j_d)``. For the device span, idle time counts from the device's own
first start and to its own last end. These are no later (earlier) than :mod:`ppopt.bounds.latest_starts` proves to be enough. A
device that does all it does in one of the windows is left out. What a device does before its operations and behind them, data
parallelism and the optimizer step, is part of its span: the least of that counts beside ``work_d``.

*Claim.* The objective is at least X if ``first + last <= makespan``, where ``makespan`` is a proved lower bound of the
makespan (whatever the objective). For then the windows are disjoint in every schedule, its operations are a feasible
point of both with its own idle times, and what a device takes is its work plus its idle time. For the makespan, links and,
where transfers block, a device with a link count as devices. Without that condition the claim is false, and so is
``makespan >= min(first + last, X)``: with one microbatch and windows as long as the schedule, idle time counts twice.
For the device span the schedules are those of the graph, shifted, so no more than its own makespan counts (:func:`of_graph`).
"""

from __future__ import annotations

from ppopt.bounds.bound import Bound, check_objective
from ppopt.bounds.closed_form import makespan_of
from ppopt.bounds.heads import heads
from ppopt.clock import Limits
from ppopt.constraints import FamilyGraph, pairs_save_time, relaxed_graphs
from ppopt.interrupt import uninterrupted
from ppopt.pipeline import Pipeline
from ppopt.schedule import Objective

MAX_OPERATIONS = 20_000
"""Windows with more operations are not tried: posting them alone takes seconds, and no proof comes of it."""


def window(
    pipeline: Pipeline,
    first: int,
    last: int,
    objective: Objective = "makespan",
    *,
    makespan: int,
    limits: Limits,
    known: int = 0,
    target: int | None = None,
    grain: int = 1,
    pairs: bool = False,
) -> Bound | None:
    """What the ``first`` and the ``last`` ticks imply, by one CP-SAT model of both (``makespan``: a proved bound of it).

    The value is the solver's proved bound of X, so it holds when the time runs out too; ``known`` is a proved bound of the
    objective to start from, and the least that comes back. ``target``: no more is asked for; the solver looks for windows
    with X below it, and if there are none the bound is ``target``. ``grain``: in the constraints starts are counted in units
    of that many ticks, rounded down, and durations are rounded down (what does not overlap in a schedule does not after
    that); the work keeps its true ticks. Coarser is faster and weaker.

    Valid for every pipeline: all routes, uneven durations, latencies, links, memory, few microbatches (for the device span a
    transfer is a mere delay). ``pairs``: also for schedules with overlapped pairs. ``None``: where a window is below ``grain`` or
    both are more than ``makespan``, or hold more than ``MAX_OPERATIONS``. With two workers or more two solvers race, with and
    without presolve.

    Raises:
        ValueError: an unknown objective.
        KeyboardInterrupt: Ctrl-C ended the search.
    """
    check_objective(objective)
    own = objective == "span"
    graph = relaxed_graphs(pipeline, pairs, links=not own)[0]
    work = list(map(sum, zip(graph.work, graph.around, strict=True))) if own else graph.work
    graph = graph.computing() if own else graph
    makespan = of_graph(makespan, graph, pipeline, objective, pairs)
    if min(first, last) < grain or first + last > makespan:
        return None
    with uninterrupted():
        from ppopt.bounds.window_model import Side, Windows
        from ppopt.cpsat.running import Known

    both = ((graph, first), (graph.reversed(), last))
    sides = [Side(of, length // grain, heads(of, memory=True)) for of, length in both]
    if sum(int((head < side.units * grain).sum()) for side in sides for head in side.heads) > MAX_OPERATIONS:
        return None
    base = max(work)
    known = max(known, base)
    if target is None or target <= known:
        target = known + first + last + 1  # more than any X
    answer = Windows(sides, work, known=known, target=target, grain=grain, own=own).least(limits)
    if answer.interrupted:
        raise KeyboardInterrupt
    proved = target if answer.known is Known.NONE else max(known, base + answer.bound)
    proof = f"work {base} and {proved - base} idle in the first {first} and the last {last} ticks"
    if own:
        proof += ", what is before and after as work" * pipeline.ticks.margins + ", transfers as mere delays" * bool(
            pipeline.lines
        )
    return Bound(proved, "window certificate", proof, exact=answer.known is Known.BEST)


def of_graph(makespan: int, graph: FamilyGraph, pipeline: Pipeline, objective: Objective, pairs: bool) -> int:
    """What of a bound of the pipeline's makespan is one of the schedules that a window speaks of.

    Where these are the graph's own (device span), and other graphs or links gave the bound, it may be too much for them.
    """
    if objective == "span" and (pipeline.lines or pipeline.ticks.margins or (pairs and pairs_save_time(pipeline))):
        return min(makespan, makespan_of(graph.computing()))
    return makespan
