"""Cuts that others make, and the named schedules on them: the even and the balanced cut, and PyTorch's auto-partition."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from ppopt.clock import Clock, OutOfTime
from ppopt.constraints import Word
from ppopt.named import Restriction, Row, placed_freely, placed_here
from ppopt.named.auto_partition import simulated
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError
from ppopt.pipeline.partitions import Counts
from ppopt.schedule import Objective, Order, Schedule
from ppopt.search import strategies, tuning
from ppopt.search.cuts import CutPipelines, fastest, plain, shown
from ppopt.search.near_cuts import retimed, value_of
from ppopt.search.over_cuts import OverCuts
from ppopt.search.settings import Settings
from ppopt.search.step import Taken
from ppopt.timing import OrderError


class Made(NamedTuple):
    """A cut that others make, and what is said of it."""

    counts: Counts
    note: str = ""


def dealt(pipeline: Pipeline, name: str) -> Made:
    """The even or the balanced cut.

    Raises:
        PipelineError: there is none.
    """
    return Made(pipeline.changed(partition=name, memory=dataclasses.replace(pipeline.memory, limit=None)).counts)


def simulating(pipeline: Pipeline) -> tuple[str, ...]:
    """The named schedules on this placement that PyTorch's auto-partition simulates."""
    if pipeline.placement == "loop" and pipeline.chunks > 1:
        return ("interleaved-1f1b", "interleaved-zb")
    return ("1f1b",) if pipeline.placement == "linear" else ()


def auto_cut(pipeline: Pipeline, schedule: str, clock: Clock, seconds: float) -> Made:
    """The cut of PyTorch's auto-partition, as far as these ``seconds`` of the clock last; one schedule is simulated in any case.

    Raises:
        PipelineError: there is none.
        Restriction: it is not defined for this pipeline.
    """
    best, clock = None, clock.slice(seconds)
    for found in simulated(fastest(pipeline), schedule):
        clock.charge(tuning.SCHEDULED * found.pipeline.index.computations)
        value = Fraction(found.makespan, found.pipeline.ticks.per_unit)
        if best is None or value < best[0]:
            best = (value, found.pipeline.counts)
        if clock.over:
            break
    assert best is not None, "the first one is always given"
    return Made(best[1], f"{schedule} takes {plain(best[0])}")


def by_others(pipeline: Pipeline, clock: Clock, seconds: float) -> Iterator[tuple[str, Callable[[], Made]]]:
    """The cuts that others make, by name: the balanced one, then those that the clock has time for.

    ``seconds``: what each simulation may take. What there is no time for raises :class:`OutOfTime`.
    """
    yield "balanced cut", partial(dealt, pipeline, "balanced")
    makes = {"even cut": partial(dealt, pipeline, "even")}
    for schedule in simulating(pipeline):
        makes[f"PyTorch's auto-partition for {schedule}"] = partial(auto_cut, pipeline, schedule, clock, seconds)
    for name, make in makes.items():
        yield name, _left_out if clock.over else make


def _left_out() -> Made:
    raise OutOfTime("left out, no time was left")


def named_on(pipeline: Pipeline, objective: Objective) -> Iterator[Schedule]:
    """The named schedules on a cut."""
    return placed_freely(pipeline, objective) if pipeline.recompute == CHOOSE else placed_here(pipeline)


def until(schedules: Iterator[Schedule], clock: Clock) -> Iterator[Schedule]:
    """As many as the clock has time for."""
    while not clock.over and (schedule := next(schedules, None)) is not None:
        yield schedule


class CutsOfOthers:
    """Cuts that others make, from which a search over all cuts begins.

    ``over``: learns from them; ``words_of``: what binds on a cut beside the rules; ``found``: is told of every named schedule of
    the placement that fits the memory.
    """

    def __init__(
        self,
        over: OverCuts,
        at: CutPipelines,
        settings: Settings,
        words_of: Callable[[Pipeline], tuple[Word, ...]],
        found: Callable[[Schedule, tuple[Word, ...]], None],
        steps: list[Taken],
    ) -> None:
        self._over, self._at, self._settings, self._words_of = over, at, settings, words_of
        self._found, self._steps = found, steps
        self._starts: dict[Order, Schedule] = {}

    @property
    def schedules(self) -> Sequence[Schedule]:
        """Each order that a named schedule has on one of the cuts, on the last of these."""
        return list(self._starts.values())

    def begin(self, rows: Iterable[Row]) -> None:
        """Take over the fastest row that is on this placement and within memory, with its cut and what recomputes there, where
        nothing else binds."""
        objective, places = self._over.objective, self._at.pipeline.places
        here = (row.schedule for row in rows if row.schedule is not None and row.schedule.pipeline.places == places)
        for schedule in sorted(here, key=lambda schedule: value_of(schedule, objective)):
            timed = None if schedule.order.paired else self._here(schedule)
            if timed is not None and timed.within_memory and not self._words_of(timed.pipeline):
                self._found(timed, ())
                return

    def _here(self, schedule: Schedule) -> Schedule | None:
        """A schedule with the times and amounts of these layers; ``None``: it is of other ones, or there is no room for it."""
        own, asked = schedule.pipeline, self._at.pipeline
        if own.layers is None:
            return None
        try:
            pipeline = asked.changed(
                partition=own.counts,
                recompute=own.recompute if asked.recompute == CHOOSE else asked.recompute,
                route_of_microbatch=asked.route_of_microbatch,
            )
            return retimed(schedule, pipeline, self._over.objective)
        except (PipelineError, OrderError):
            return None

    def cuts(self, clock: Clock, known: bool) -> list[Counts]:
        """The even and the balanced cut, where there are any; the named schedules are run on these and on all others.

        Once the clock is over no more are run where a schedule is ``known``: with recomputing left open each may take a second.
        """
        made = by_others(self._at.pipeline, clock, strategies.MOVES * self._settings.seconds)
        balanced, even, *_ = [self._made(name, make, clock if known else None) for name, make in made]
        return [counts for counts in (even, balanced) if counts is not None]

    def _made(self, name: str, make: Callable[[], Made], clock: Clock | None) -> Counts | None:
        """A cut that others make, with the named schedules of this placement that the clock has time for, without one with all of
        them; ``None``: there is none."""
        begun = time.monotonic()
        try:
            counts, known = make()
        except (PipelineError, Restriction, OutOfTime) as error:
            self._steps.append(Taken(name, 0.0, str(error)))
            return None
        title = f"{name} {shown(counts)}"
        if (pipeline := self._at(counts)) is None:
            self._steps.append(Taken(title, 0.0, "no room for a microbatch"))
            return None
        self._over.learn_from(fastest(pipeline))
        objective = self._over.objective
        each = iter(()) if self._words_of(pipeline) else named_on(pipeline, objective)
        schedules = list(each if clock is None else until(each, clock))
        self._starts |= {schedule.order: schedule for schedule in schedules}
        fit = [schedule for schedule in schedules if not schedule.order.paired and schedule.within_memory]
        for schedule in fit:
            self._found(schedule, ())
        known += f"{known and '; '}bound {plain(self._over.bound_of(fastest(pipeline)))}"
        if fit:
            value = min(value_of(schedule, objective) for schedule in fit)
            known += f", best of the named schedules that fit {plain(value)}"
        self._steps.append(Taken(title, time.monotonic() - begun, known))
        return counts
