"""From cut to cut of the layers by moving single ends: to smaller bounds, or where a known order takes less time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from fractions import Fraction
from typing import TypeAlias

from ppopt import bounds
from ppopt.bounds.certificates import certificates, durations_of
from ppopt.clock import Clock
from ppopt.pipeline import CHOOSE, Pipeline
from ppopt.schedule import Objective, Order, Schedule
from ppopt.search import tuning
from ppopt.search.cuts import moved, plain, shown
from ppopt.search.over_cuts import Counts
from ppopt.timing import CyclicOrder, time_order
from ppopt.timing.paths import shortest_spans

At: TypeAlias = Callable[[Counts], Pipeline | None]
"""The pipeline of a cut; ``None``: there is no room for a microbatch."""
Key: TypeAlias = Callable[[list[Fraction]], tuple[Fraction, Fraction]]
"""How good the bounds of the devices of a cut are: less is better."""


def found_on(schedule: Schedule, objective: Objective) -> str:
    """What a schedule takes, in the user's unit, and on which cut, in words."""
    return f"best {plain(value_of(schedule, objective))} on {shown(schedule.pipeline.counts)}"


def bounds_on(counts: Counts, objective: Objective, at: At, clock: Clock) -> list[Fraction] | None:
    """The one-machine bounds of all devices of a cut, in the user's unit, the largest first, which is no less than what the limit
    of memory says; ``None``: there is no room for a microbatch."""
    pipeline = at(counts)
    if pipeline is None:
        return None
    clock.charge(tuning.SCHEDULED * pipeline.index.computations)
    duration = durations_of(pipeline)
    each = certificates(pipeline, pipeline.devices + 1, objective)
    found = [Fraction(certificate.value(duration), pipeline.ticks.per_unit) for certificate in each]
    within = bounds.memory(pipeline, objective)
    return found if within is None else [max(found[0], Fraction(within.value, pipeline.ticks.per_unit)), *found[1:]]


def improved(counts: Counts, objective: Objective, key: Key, at: At, left_out: Collection[Counts], clock: Clock) -> Counts:
    """From ``counts`` to better and better cuts, none of ``left_out``, until no end can be moved to a better one."""
    known = bounds_on(counts, objective, at, clock)
    if known is None:
        return counts
    best, better = key(known), True
    while better and not clock.over:
        better = False
        for other in moved(counts):
            if clock.over:
                break
            known = None if other in left_out else bounds_on(other, objective, at, clock)
            if known is not None and key(known) < best:
                counts, best, better = other, key(known), True
                break
    return counts


def followed(schedule: Schedule, objective: Objective, at: At, left_out: Collection[Counts], clock: Clock) -> Schedule:
    """The order of a schedule on better and better cuts, none of ``left_out``, until no end can be moved to a better one.

    A schedule on another cut within memory, or ``schedule`` itself.
    """
    best, better = schedule, True
    while better and not clock.over:
        better = False
        for counts in moved(best.pipeline.counts):
            if clock.over:
                break
            pipeline = None if counts in left_out else at(counts)
            timed = None if pipeline is None else retimed(best, pipeline, objective)
            if timed is not None:
                clock.charge(tuning.SCHEDULED * timed.pipeline.index.computations)
                if timed.within_memory and value_of(timed, objective) < value_of(best, objective):
                    best, better = timed, True
                    break
    return best


def retimed(schedule: Schedule, pipeline: Pipeline, objective: Objective) -> Schedule | None:
    """The order of a schedule on another cut (:func:`at_best_times`); ``None``, too: it is not known there what recomputes."""
    return None if pipeline.recompute == CHOOSE else at_best_times(pipeline, schedule.order, objective)


def at_best_times(pipeline: Pipeline, order: Order, objective: Objective) -> Schedule | None:
    """The best schedule in this order; ``None``: transfers wait in a circle."""
    try:
        timed = time_order(pipeline, order)
    except CyclicOrder:
        return None
    return shortest_spans(timed) if objective == "span" else timed


def value_of(schedule: Schedule, objective: Objective) -> Fraction:
    """The objective in the user's unit: ticks may differ from cut to cut."""
    return Fraction(schedule.objective(objective), schedule.pipeline.ticks.per_unit)
