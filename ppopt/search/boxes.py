"""Cut and order searched for together, in boxes of cuts around the best one."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from ppopt.clock import Clock, Limits
from ppopt.interrupt import uninterrupted
from ppopt.schedule import Order, Schedule
from ppopt.search.cuts import plain, shown
from ppopt.search.near_cuts import At, makespan_of
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.settings import Settings
from ppopt.timing import CyclicOrder, time_order

if TYPE_CHECKING:
    from ppopt.bounds.scheduled_cuts import Box


@dataclass(frozen=True)
class Looked:
    """What a look into a box has shown: a better schedule, if one was found; ``closed``: nothing else in the box is better."""

    box: Box
    schedule: Schedule | None
    closed: bool

    def __str__(self) -> str:
        found = "nothing found"
        if self.schedule is not None:
            found = f"best {plain(makespan_of(self.schedule))} on {shown(self.schedule.pipeline.counts)}"
        return f"{found}, no better one" if self.closed else f"{found}: stays open"


class Boxes:
    """Looks into boxes around the best cut; the next one is twice as large, where nothing more is to be found in the last one.

    Where the last look came to no end without finding anything, it is twice as long as well. ``spent``: seconds for looks so far.
    """

    def __init__(self, over: OverCuts, at: At, settings: Settings, seconds: float) -> None:
        layers = over.pipeline.layers
        assert layers is not None
        self.spent = 0.0
        self.useful = over.joint
        """Whether there is a model, and what it finds is what it seems to be: better once it is timed by the rules."""
        self._over, self._at, self._settings, self._seconds = over, at, settings, seconds
        self._reach, self._most = 1, len(layers)

    def due(self, others: float) -> bool:
        """Whether a look comes next, where all else has taken that many seconds: as long as all else it may take."""
        return self.useful and self.spent + self._seconds <= others

    def name(self, counts: Counts) -> str:
        """The next look, in words."""
        return f"cuts and orders, ends within {self._reach} of {shown(counts)}"

    def look(self, counts: Counts, below: Fraction | float, clock: Clock) -> Looked:
        """Look for something below that much around a cut."""
        with uninterrupted():  # the solver is imported when it is used
            from ppopt.bounds.scheduled_cuts import Box

        box, before = Box.around(counts, self._reach), clock.spent
        limits = Limits(clock.slice(self._seconds), 0.0, self._settings.workers, self._settings.seed)
        found = self._over.with_order(limits, below, box)
        schedule = None
        if found.counts is not None:
            schedule = self._timed(found.counts, found.rows)
            self.useful = schedule is not None and makespan_of(schedule) < below
        exact = found.none or (schedule is not None and makespan_of(schedule) * self._over.per_unit <= found.bound)
        closed = found.settled and exact
        if closed or found.counts is None:
            self._reach = min(2 * self._reach, self._most)
        if not closed and found.counts is None:
            self._seconds *= 2
        self.spent += clock.spent - before
        return Looked(box, schedule if self.useful else None, closed)

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
