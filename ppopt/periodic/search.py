"""Repetition: the order in which it asks its questions."""

from __future__ import annotations

from dataclasses import dataclass

from ppopt.clock import Limits
from ppopt.constraints import graphs_of
from ppopt.periodic.fastest import Periods
from ppopt.periodic.makespans import Makespans
from ppopt.periodic.modulo import Rotation
from ppopt.periodic.periodic import Periodic, schedule_of
from ppopt.periodic.state import OneGraph, State, Step
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.solvers.outcome import Outcome, Progress

_LONGEST = 12
"""Most microbatches per period, once no better time per microbatch is found."""


@dataclass(frozen=True)
class Repeated(Outcome):
    """``periodic``: what the schedule is an expansion of, or the best that was found where none is; ``lower_bound`` is the given
    one. ``base``: of the shortest period that with the fewest microbatches."""

    periodic: Periodic | None = None
    base: Periodic | None = None
    steps: tuple[Step, ...] = ()


def solve(
    pipeline: Pipeline,
    *,
    lower_bound: int,
    limits: Limits,
    upper: int | None = None,
    start: Periodic | None = None,
    base: Periodic | None = None,
    like: Schedule | None = None,
    progress: Progress | None = None,
) -> Repeated:
    """The best periodic schedule found for the makespan, expanded to the pipeline's microbatches; none at or above ``upper``.

    Data-parallel traffic does not count here. ``lower_bound`` is a proved one for that, in ticks; the search is over when it is
    met. The time of the search does not depend on the number of microbatches; that of the expansion does. ``start`` and ``base``
    are what an earlier search of this pipeline has found; ``like`` is a schedule of it, with any number of microbatches, whose
    middle may repeat.
    """
    state = State(pipeline, lower_bound, limits, upper, (start, base), like, progress)
    try:
        _run(state)
    except KeyboardInterrupt:  # what was found is kept
        limits.clock.interrupt()
    best = state.best
    schedule = None if best is None else schedule_of(pipeline, best)
    # operations that take no time may tie with each other in another order
    if schedule is not None and not schedule.within_memory:
        schedule = state.known = state.base = None
    known = state.known, state.base
    return Repeated(schedule, lower_bound, *known, tuple(state.steps), interrupted=limits.clock.interrupted)


def _run(state: State) -> None:
    """Until the bound is met or the time is over."""
    if min(state.counts) == 0:
        return
    graphs = graphs_of(state.pipeline)
    for place, graph in enumerate(graphs):
        if state.done:
            return
        _run_graph(OneGraph(state, graph, state.limits.slice(state.limits.clock.left / (len(graphs) - place))))


def _run_graph(of: OneGraph) -> None:
    """First the period, then the beginning and the end; where these leave nothing open, with a longer period."""
    counts = of.all.counts
    periods, makespans = Periods(of), Makespans(of)
    if of.own is not None and of.own.makespan_for(counts) is None:  # of another remainder
        of.own = Rotation.of(of.own).begun(counts)
    if of.own is not None:
        of.keep(of.own)
    tried = of.base
    if of.all.like is not None:
        periods.look(of.all.like)
    fastest = periods.fastest()
    if fastest is not None and (of.own is None or fastest.period * of.own.step < of.own.period * fastest.step):
        of.own = fastest
    if of.base is not None and of.base is not tried and not of.done:
        periods.fewer(of.base)
    base = of.base
    if of.own is not None and not of.done:
        makespans.ends(of.own, of.left / 16)
    known = of.own
    while of.own is not None and not of.done:
        value = of.own.makespan_for(counts)
        makespans.rounds()
        known = of.own if of.own.makespan_for(counts) != value else known
        base = of.base if base is None or of.base is None or of.base.step <= base.step else base
        if 2 * of.own.step > _LONGEST:
            break
        makespans.doubled()
    if known is not None:
        of.all.know(known, base, periods.shown)
