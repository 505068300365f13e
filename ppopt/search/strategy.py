"""Which step comes when, and how much of the time it may take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ppopt import bounds
from ppopt.bounds.late import beside_span
from ppopt.named import Row
from ppopt.search.result import Step
from ppopt.search.searches import decide, improve, integer_program, minimise, repeat
from ppopt.search.smaller import from_few, from_fewer_devices
from ppopt.search.state import Search
from ppopt.search.steps import (
    LARGE_GRAPH,
    adapted_schedules,
    binding_order,
    closed_form,
    closed_forms,
    few_states,
    list_schedules,
    named_schedules,
    paced_schedules,
    state_graph,
    windows,
)
from ppopt.timing.paths import shortest_spans

FINE = 1000
"""Operations of more ticks than this are first scheduled on a coarser grid."""
COARSE = 200
"""Ticks of the longest operation there."""
MANY = 1000
"""Where there are more, schedules are improved before decisions are asked for, which take long."""
SEVERAL = 20_000
"""Up to so many a list schedule takes a moment, and many are tried before other steps."""
WIDE = 0.05
"""Where more of the best is open, better schedules are looked for first; else decisions at the bound often end the search."""


def run(search: Search, solver: str, rows: Callable[[], Sequence[Row]]) -> None:
    """Take one step after the other until the gap is closed or the time is up."""
    closed_form(search, "work", bounds.work)  # takes no time, so that even an early interrupt has a bound
    early = search.large and solver != "ilp"
    if early:  # timing all named schedules may take longer than finding a better one
        closed_forms(search)
        few_states(search)
        if search.open:
            from_few(search, search.time_limit / 10)
        if search.goes_on:
            from_fewer_devices(search, search.time_limit / 6)
        if search.goes_on:
            list_schedules(search, search.time_limit / (5 if search.operations <= SEVERAL else 20))
    named_schedules(search, rows)
    if search.extra and binding_order(search):
        return
    if not early:
        closed_forms(search)
        if solver != "ilp":
            few_states(search)
    if search.apart and not search.large:
        list_schedules(search)
    if search.open and solver == "ilp":
        integer_program(search)
    elif search.open:
        search_on(search)


def search_on(search: Search) -> None:
    """For spans the makespan first; then what suits the number of operations."""
    if search.open and search.objective == "span" and not search.extra:
        makespan_first(search, search.left * (0.8 if search.large else 0.3 if search.operations > MANY else 0.15))
    if search.large:
        many_operations(search)
    else:
        few_operations(search)


def many_operations(search: Search) -> None:
    """A good pace, the state graph where it may be larger; windows and repetition in turns, for longer.

    Where even the busiest device idles in the middle, a shorter period counts for more than windows at the ends.
    """
    if search.goes_on and search.repeats and search.source != "repetition":
        repeat(search, search.left / 8)  # what is proved below the best is easier to prove below a better one
    if search.goes_on and search.keeps_pace:
        windows(search, search.left / 3)
        if search.goes_on and search.repeats:
            repeat(search, search.left / 4)
    if search.goes_on and not search.keeps_pace:
        state_graph(search, LARGE_GRAPH, search.left / 3, exact=False)
    if search.goes_on:
        windows(search, search.left / (3 if search.keeps_pace else 8), shortest=8)
    if search.goes_on and search.repeats:
        repeat(search, search.left / (4 if search.keeps_pace else 2))
    if search.goes_on:
        list_schedules(search, search.left / 8)
    if search.goes_on and not search.keeps_pace:
        paced_schedules(search, search.left / 8)
    if search.goes_on:
        windows(search, search.left / (2 if search.keeps_pace else 6), shortest=10)
    if search.goes_on and search.repeats:
        repeat(search, search.left)
    if search.best is None:
        list_schedules(search)


def few_operations(search: Search) -> None:
    """Decisions at the bound and between bound and best, for longer and longer; between the rounds, improve and minimise."""
    longest = int(search.pipeline.ticks.duration.max())
    grids = [-(-longest // COARSE), 1] if longest > FINE else [1]
    asking = search.objective == "span" and search.operations <= MANY  # decisions take longer, and bring more than the rest
    seconds = max(1.0, search.time_limit / (15 if asking else 30))
    wide = search.best is None or search.value - search.lower > WIDE * search.value
    if search.goes_on and (wide or search.operations > MANY):
        _starts(search)
    if search.goes_on and search.operations > MANY:
        windows(search, min(search.left, search.time_limit / 12))
        if search.repeats and search.pipeline.microbatches > search.pipeline.devices:
            repeat(search, search.left / 5)
        improve(search, search.left / 5)

    gains = False

    def hard() -> None:  # schedules of short spans are found around others, and hardly by decisions
        nonlocal gains
        if search.paced is None:
            _starts(search)
        windows(search, min(search.left, search.time_limit / 12))
        gains = improve(search, search.left / (3 if search.objective == "span" else 5))

    if search.open:
        decide(search, seconds, grids[0], None if asking else hard)
    if search.goes_on and asking:
        hard()
    if search.goes_on and not asking:
        windows(search, min(search.left, search.time_limit / 8))
    if search.goes_on and not search.keeps_pace:
        state_graph(search, LARGE_GRAPH, search.left / 3, exact=False)
    if search.goes_on and gains:
        improve(search, search.left / (2 if search.operations > MANY else 3))
    if search.open:
        decide(search, 3 * seconds, grids[0])
    if search.goes_on and search.repeats:
        repeat(search, search.left / 4)
    seconds = max(2.0, search.time_limit / 10)
    while search.goes_on:
        for grid in grids:
            decide(search, seconds, grid)
            if search.goes_on:
                improve(search, 2 * seconds)
            if search.goes_on:
                minimise(search, 2 * seconds, grid)
        seconds *= 2


def _starts(search: Search) -> None:
    """Schedules that take longer to make than those by a priority rule, and are often better."""
    adapted_schedules(search, min(1.0, search.left / 4))
    if search.goes_on:
        paced_schedules(search, search.left / (12 if search.operations > MANY else 40))


def makespan_first(search: Search, seconds: float) -> None:
    """Search for the makespan, which is far easier: its schedules have good spans, and its bound is nearly one of spans."""
    inner = Search(
        search.pipeline,
        "makespan",
        (),
        search.limits(seconds),
        progress=None,
        best=search.best,
        source=search.source,
    )
    begun = time.monotonic()
    try:
        closed_forms(inner)
        few_states(inner)
        if inner.open:
            search_on(inner)
    finally:
        search.versions |= inner.versions
        search.infeasible = inner.infeasible
        search.steps += [Step(f"makespan: {step.name}", step.seconds, step.outcome) for step in inner.steps]
        if inner.best is not None:
            search.found(inner.best if search.large else shortest_spans(inner.best), inner.source)
        beside = beside_span(search.pipeline)
        if beside is not None:
            search.prove(inner.lower - beside, inner.proved_by or "work")
        text = f"{search.best_text()}, bound {search.pipeline.time(search.lower)} (makespan {search.pipeline.time(inner.lower)})"
        search.steps.append(Step("spans of that", time.monotonic() - begun, text))
