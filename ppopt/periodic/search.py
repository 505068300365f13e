"""Modulo scheduling: the order in which it asks its questions."""

from __future__ import annotations

from dataclasses import dataclass, field

from ppopt.clock import Limits
from ppopt.constraints import graphs_of
from ppopt.periodic.graph_search import Asked, Found, GraphSearch, Grown, SharedState
from ppopt.periodic.kernel import Kernel
from ppopt.periodic.makespan_search import MakespanSearch
from ppopt.periodic.period_search import PeriodSearch
from ppopt.periodic.periodic_schedule import PeriodicSchedule, schedule_of
from ppopt.periodic.tuning import ModuloTuning
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.solvers.outcome import Outcome, Progress


@dataclass(frozen=True)
class PeriodicOutcome(Outcome):
    """``found``: what the schedule is an expansion of, or the best where there is no schedule. A later search can go on from it.

    ``lower_bound`` is the given one. ``asked``: the questions and their answers.
    """

    found: Found = field(default_factory=Found)
    asked: tuple[Asked, ...] = ()

    @property
    def periodic(self) -> PeriodicSchedule | None:
        """The best that was found, with any makespan."""
        return self.found.best


def solve(
    pipeline: Pipeline,
    *,
    lower_bound: int,
    limits: Limits,
    tuning: ModuloTuning,
    upper: int | None = None,
    known: Found | None = None,
    example: Schedule | None = None,
    progress: Progress | None = None,
    grown: Grown | None = None,
) -> PeriodicOutcome:
    """The best periodic schedule found for the makespan, expanded to the pipeline's microbatches; none at or above ``upper``.

    What devices do before and after their operations does not count here. ``lower_bound`` is a proved one for that, in ticks; the
    search is over when it is met. The time of the search does not depend on the number of microbatches; that of the expansion
    does. ``known``: what an earlier search of this pipeline has found. ``example``: a schedule of it, with any number of
    microbatches, whose kernel may be a good one. ``grown``: how far earlier searches of this pipeline have come; what they have
    asked in vain is asked again only for longer. It is brought up to date. Ctrl-C ends the search and is noted in the outcome.
    """
    shared = SharedState(
        pipeline, lower_bound, limits, tuning, upper, known or Found(), example, progress, {} if grown is None else grown
    )
    try:
        _run(shared)
    except KeyboardInterrupt:  # what was found is kept
        limits.clock.interrupt()
    best, found = shared.improvement, shared.found
    schedule = None if best is None else schedule_of(pipeline, best)
    # operations that take no time may tie with each other in another order
    if schedule is not None and not schedule.within_memory:
        schedule, found = None, Found()
    return PeriodicOutcome(schedule, lower_bound, found, tuple(shared.asked), interrupted=limits.clock.interrupted)


def _run(shared: SharedState) -> None:
    """Until the bound is met or the time is over."""
    if min(shared.counts) == 0:
        return
    graphs = graphs_of(shared.pipeline)
    for place, graph in enumerate(graphs):
        if shared.done:
            return
        _run_graph(GraphSearch(shared, graph, shared.limits.slice(shared.limits.clock.left / (len(graphs) - place))))


def _run_graph(search: GraphSearch) -> None:
    """First the period, then prologue and epilogue; where these leave nothing open, with twice the unroll factor."""
    counts = search.shared.counts
    periods, makespans = PeriodSearch(search), MakespanSearch(search)
    if search.best is not None and search.best.makespan_for(counts) is None:  # of another remainder
        search.best = Kernel.of(search.best).with_ends(counts)
    if search.best is not None:
        search.offer(search.best)
    given = search.least_unrolled
    if search.shared.example is not None:
        periods.take_kernel_of(search.shared.example)
    fastest = periods.fastest()
    if fastest is not None and (search.best is None or fastest.period * search.best.unroll < search.best.period * fastest.unroll):
        search.best = fastest
    if search.least_unrolled is not None and search.least_unrolled is not given and not search.done:
        periods.unroll_less(search.least_unrolled)
    least_unrolled = search.least_unrolled
    if search.best is not None and not search.done:
        makespans.shorten_ends(search.best, search.left / 16)
    best = search.best
    while search.best is not None and not search.done:
        value = search.best.makespan_for(counts)
        makespans.rounds()
        best = search.best if search.best.makespan_for(counts) != value else best
        if least_unrolled is None or search.least_unrolled is None or search.least_unrolled.unroll <= least_unrolled.unroll:
            least_unrolled = search.least_unrolled
        if 2 * search.best.unroll > search.tuning.most_doubled:
            break
        makespans.unroll_twice()
    if best is not None:
        search.shared.note_best_of_graph(best, least_unrolled, periods.period_bounds)
