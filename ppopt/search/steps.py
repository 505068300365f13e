"""Steps that need no solver: baselines, and lower bounds of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ppopt import bounds
from ppopt.bounds import Bound
from ppopt.bounds.throughput import throughput
from ppopt.clock import Clock
from ppopt.constraints import rules_of, spread
from ppopt.heuristics import PRIORITIES, Jobs, Stuck, covers, each_baseline, each_paced, listable, order_of, run_jobs
from ppopt.named import Row, adapted
from ppopt.schedule import Schedule
from ppopt.search.state import Search
from ppopt.timing import CyclicOrder, time_order
from ppopt.timing.demands import demands_of
from ppopt.timing.obeys import broken
from ppopt.timing.paths import shortest_spans

SMALL_GRAPH, LARGE_GRAPH = 30_000, 4_000_000
"""States up to which the state graph is built, before any search and after a first one."""
LISTED = 2e-5
"""Deterministic seconds for an operation of a list schedule; about what it takes."""
PATIENCE = 150
"""Schedules that are tried after the last one that was the best."""
ORDER = "the binding order, which leaves nothing open"
"""What proves the value of the only order, or that it is not possible."""


def closed_forms(search: Search) -> None:
    """The bounds that take no time."""
    for name, bound in (("one machine", bounds.machine), ("memory", bounds.memory)):
        if search.open:
            closed_form(search, name, bound)


def closed_form(search: Search, name: str, bound: Callable[..., Bound | None]) -> None:
    """One of them."""
    with search.step(f"bound: {name}") as done:
        done(_bounded(search, bound(search.pipeline, search.objective, pairs=search.pairs)))


def named_schedules(search: Search, rows: Callable[[], Sequence[Row]]) -> None:
    """Time the named schedules; those of this placement are taken, where something binds those that obey it."""
    with search.step("named schedules") as done:
        search.named = tuple(rows())
        timed = [(row.name, row.schedule) for row in search.named if row.schedule is not None]
        own = [(name, schedule) for name, schedule in timed if schedule.pipeline.routes == search.pipeline.routes]
        if search.extra:  # the best first: waiting for what binds makes none of them shorter
            own.sort(key=lambda row: row[1].objective(search.objective))
        for name, schedule in own:
            if search.extra and search.best is not None and schedule.objective(search.objective) >= search.value:
                break
            if schedule.within_memory:
                same = schedule.pipeline == search.pipeline  # then with its transfers in their order
                found = search.obeying(schedule if same else time_order(search.pipeline, schedule.order))
                if found is not None:
                    search.found(found, name)
        done(f"{len(own)} of {len(search.named)} have this placement; {search.best_text()}")


def binding_order(search: Search) -> bool:
    """Whether the binding constraints leave a single order; then that is the answer, if the memory limit allows it."""
    with search.step("binding order") as done:
        schedule = _only_order(search)
        if schedule is None:
            done("no order obeys all of it" if search.infeasible else "leaves something open")
            return search.infeasible
        if not schedule.within_memory:
            search.infeasible, search.lower, search.proved_by = True, schedule.objective(search.objective), ORDER
            done("the only order exceeds the memory limit")
            return True
        search.found(schedule, "order")
        done(search.best_text())
        if search.objective == "span" and search.pipeline.ticks.traffic:
            return False  # a device that starts later than it could may have the smaller span
        search.lower, search.proved_by = search.value, ORDER
        return True


def _only_order(search: Search) -> Schedule | None:
    """The schedule of the only order that the binding constraints leave; ``None``: there are several, or there is none at all.

    Links may carry transfers in several orders, and so may devices what excludes each other or is held between them.
    """
    pipeline, words = search.pipeline, search.extra
    if pipeline.lines or not covers(pipeline, words) or any(spread(pipeline, word) for word in words):
        return None
    try:
        order = order_of(pipeline, words)
        schedule = None if order is None else time_order(pipeline, order, words=words)
    except CyclicOrder:
        search.infeasible, search.proved_by = True, ORDER
        return None
    if schedule is not None and search.objective == "span":
        schedule = shortest_spans(schedule, demands_of(pipeline, words))
    if schedule is not None and broken(schedule, words):
        search.infeasible, search.proved_by = True, ORDER
        return None
    return schedule


def list_schedules(search: Search, seconds: float = 1.0) -> None:
    """List schedules from where it stopped, as long as there is time left, and for so many ``seconds`` in any case."""
    with search.step("list scheduling") as done:
        before = search.best
        if search.extra:
            _by_priority(search)
        else:
            least, spare = Clock(seconds, deterministic=search.clock.deterministic), search.left - seconds
            search.listed = search.listed or each_baseline(search.pipeline)
            for name, schedule in search.listed:
                search.found(schedule, name)
                if search.large:
                    search.clock.charge(LISTED * search.operations)
                if (least.over and search.left <= 0) or (search.large and search.left <= spare) or not search.apart:
                    break
        done(search.text_since(before))


def adapted_schedules(search: Search, seconds: float) -> None:
    """The heuristics among the named schedules, at one limit of memory after the other, for so many ``seconds``."""
    _one_after_the_other(search, "named heuristics", adapted(search.pipeline), seconds)


def paced_schedules(search: Search, seconds: float) -> None:
    """List schedules whose microbatches enter at a pace, for so many ``seconds`` or until they have not got better for long."""
    search.paced = search.paced or each_paced(search.pipeline, search.objective, search.whole.seed)
    _one_after_the_other(search, "list scheduling at a pace", search.paced, seconds)


def _one_after_the_other(search: Search, step: str, schedules: Iterator[tuple[str, Schedule]], seconds: float) -> None:
    """Take those that fit, for so many ``seconds``, until the gap is closed or the last ``PATIENCE`` have not been better."""
    if search.extra:
        return
    with search.step(step) as done:
        before, until, tries = search.best, search.left - seconds, 0
        for name, schedule in schedules:
            tries = 0 if schedule.within_memory and search.found(schedule, name) else tries + 1
            search.clock.charge(LISTED * search.operations)
            if search.left <= until or tries == PATIENCE or not search.open:
                break
        done(search.text_since(before))


def _by_priority(search: Search) -> None:
    """What each priority rule gives under the binding constraints, as long as there is time left.

    What the list scheduler does not know of these the times may still bring about; what breaks one is left out.
    """
    jobs = Jobs(search.pipeline, listable(search.pipeline, (*rules_of(search.pipeline), *search.extra)), links=True)
    for name, rule in PRIORITIES.items():
        for patient, reserve in ((False, False), (True, False), (False, True)):
            if search.best is not None and search.left <= 0:
                return
            search.clock.charge(LISTED * search.operations)
            try:
                order = run_jobs(jobs, rule(jobs), patient=patient, reserve=reserve)
                schedule = time_order(search.pipeline, order, words=search.extra)
            except (CyclicOrder, Stuck):
                continue  # this rule runs into the memory limit, or against words between devices; others may not
            if schedule.within_memory and not broken(schedule, search.extra):
                search.found(schedule, name)


def few_states(search: Search) -> None:
    """The state graph, where it is small."""
    if search.open:
        state_graph(search, SMALL_GRAPH, min(search.left / 4, max(1.0, search.time_limit / 30)), exact=True)


def state_graph(search: Search, most: int, seconds: float, *, exact: bool) -> None:
    """The optimum where memory is so tight that there are few states, and a bound where there are some more."""
    with search.step("bound: state graph") as done:
        bound = throughput(
            search.pipeline,
            search.objective,
            pairs=search.pairs,
            most=most,
            limits=search.limits(seconds),
            exact=exact,
            target=None if search.best is None else search.value,
        )
        done(_bounded(search, bound))


def windows(search: Search, seconds: float, shortest: int = 0) -> None:
    """Bounds that take a while: idle time that the beginning and the end of every schedule have."""
    with search.step("bound: windows") as done:
        found = bounds.best(
            search.pipeline,
            search.objective,
            target=None if search.best is None else search.value,
            pairs=search.pairs,
            limits=search.limits(seconds),
            shortest=shortest,
            tried=search.windows,
        )
        done("nothing new")
        for bound in found:
            if bound.value > search.lower:
                done(_bounded(search, bound))


def _bounded(search: Search, bound: Bound | None) -> str:
    """Keep what a bound says; this in words."""
    if bound is None:
        return "does not apply"
    search.prove(bound.value, bound.argument)
    if bound.schedule is not None and not search.extra:
        search.found(bound.schedule, bound.argument)
    return f"{search.pipeline.time(bound.value)}: {bound.proof}"
