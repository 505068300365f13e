"""Cut and order searched for together, in boxes of cuts around the best one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from ppopt.clock import Clock, Limits
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.settings import Settings
from ppopt.timing import CyclicOrder, time_order

if TYPE_CHECKING:
    from ppopt.bounds.scheduled_cuts import Box

At: TypeAlias = Callable[[Counts], Pipeline | None]
"""The pipeline of a cut; ``None``: there is no room for a microbatch."""


@dataclass(frozen=True)
class Looked:
    """What a look into a box has shown: a better schedule, if one was found; ``closed``: nothing else in the box is better."""

    box: Box
    schedule: Schedule | None
    closed: bool


class Boxes:
    """Looks into boxes around one cut or another, each for some ``seconds``; ``spent``: what they took so far."""

    def __init__(self, over: OverCuts, at: At, settings: Settings, seconds: float) -> None:
        self.over, self.seconds, self.spent = over, seconds, 0.0
        self._at, self._settings = at, settings
        layers = over.pipeline.layers
        assert layers is not None
        self.layers = len(layers)
        self.reach = [1] * (over.pipeline.stages - 1)
        self.useful = True
        """Whether what is found is what it seems to be: a better schedule once it is timed by the rules."""

    def look(self, counts: Counts, below: Fraction | float, clock: Clock) -> Looked:
        """Look for something below that much around a cut."""
        from ppopt.bounds.scheduled_cuts import Box

        box, before = Box.around(counts, self.reach), clock.spent
        limits = Limits(clock.slice(self.seconds), 0.0, self._settings.workers, self._settings.seed)
        found = self.over.with_order(limits, below, box)
        schedule = None
        if found.counts is not None:
            schedule = self._timed(found.counts, found.rows)
            self.useful = schedule is not None and _makespan(schedule) < below
        closed = found.settled and self.useful
        self.learn(closed, found.counts is not None)
        self.spent += clock.spent - before
        return Looked(box, schedule if self.useful else None, closed)

    def learn(self, closed: bool, found: bool) -> None:
        """Choose the size of the next box: twice the last one where nothing better is in that, or was found in time."""
        if closed or not found:
            self.reach = [min(2 * by, self.layers) for by in self.reach]
        if not closed and not found:
            self.seconds *= 2

    def _timed(self, counts: Counts, rows: object) -> Schedule | None:
        """A schedule by the rules; ``None``: there is none, or it does not fit the memory."""
        pipeline = self._at(counts)
        if pipeline is None:
            return None
        try:
            schedule = time_order(pipeline, Order.of(pipeline, rows))  # type: ignore[arg-type]
        except CyclicOrder:
            return None
        return schedule if schedule.within_memory else None


def _makespan(schedule: Schedule) -> Fraction:
    return Fraction(schedule.makespan, schedule.pipeline.ticks.per_unit)
