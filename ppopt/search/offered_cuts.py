"""Which cut is looked at next, beside the one whose bound is known to be the least: those near it, and those of small bounds."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from fractions import Fraction

from ppopt.clock import Clock
from ppopt.search import strategies, tuning
from ppopt.search.choices import Time
from ppopt.search.cuts import plain, shown
from ppopt.search.near_cuts import At, Key, improved
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.settings import Settings
from ppopt.search.small_bounds import SmallBounds
from ppopt.search.step import Taken


class OfferedCuts:
    """Cuts that are worth a look, none of them one that had one.

    Where a limit of memory says something they come from a local search (:class:`SmallBounds`), most of them without asking all
    cuts for the one with the least bound before. Elsewhere that answer comes soon, and single ends are moved for slack.

    ``at``: the pipeline of a cut at its fastest; ``left_out``: cuts that had a look.
    """

    def __init__(self, over: OverCuts, at: At, settings: Settings, left_out: Collection[Counts], steps: list[Taken]) -> None:
        self._over, self._at, self._settings, self._left_out, self._steps = over, at, settings, left_out, steps
        self._small = SmallBounds(over.many, over, at, settings.seed) if over.many is not None and over.limited else None
        self.last: Counts | None = None
        """The last cut that a local search has found."""
        self.below: Time = math.inf
        """What is known to all cuts of that one, in the user's unit. Which one has less than that is
        answered much sooner than which one has the least: measured, for 40 layers in 16 stages in 2 s, else in 20 s."""

    def first(self, named: Sequence[Counts], asked: Sequence[Counts], below: Time, clock: Clock) -> list[Counts]:
        """Those to begin with, the least bounds first.

        ``named``: cuts that others make; ``asked``: answers of all cuts for the least bound (:class:`LeastCut`).
        """
        if self._small is None:
            better = (self._moved(of, lambda known: (known[0], sum(known, Fraction(0))), clock) for of in named)
            return sorted({*better, *sorted(asked, key=self.bound)[:1]}, key=lambda counts: (self.bound(counts), counts))
        found = self._found(self._small, named, below, clock) if named else None
        return [] if found is None else [found]

    def unasked(self, below: Time, clock: Clock) -> Counts | None:
        """One whose bound is below that much, without asking all cuts; ``None``: they should be asked."""
        if self._over.listing:
            return self._over.least_listed(below)
        if self._small is None or not self._small.begun:
            return None
        return self._found(self._small, (), below, clock)

    @property
    def local(self) -> bool:
        """Whether they come from a local search."""
        return self._small is not None

    def near(self, counts: Counts, below: Time, clock: Clock) -> Counts:
        """A cut that is likely to have a good order, its bound not much above that of ``counts``, which is the least of all."""
        if self._small is not None:
            return self._found(self._small, (counts,), below, clock) or counts
        most = Fraction(self._over.bound) + Fraction(tuning.POLISH) * Fraction(below - self._over.bound)
        return self._moved(counts, lambda known: (max(known[0], most), sum(known, Fraction(0))), clock)

    def bound(self, counts: Counts) -> Time:
        """What is known of a cut."""
        pipeline = self._at(counts)
        return math.inf if pipeline is None else self._over.bound_of(pipeline)

    def _moved(self, counts: Counts, key: Key, clock: Clock) -> Counts:
        clock = clock.slice(strategies.MOVES * self._settings.seconds)
        return improved(counts, self._over.objective, key, self._at, self._left_out, clock)

    def _found(self, small: SmallBounds, start: Sequence[Counts], below: Time, clock: Clock) -> Counts | None:
        begun = time.monotonic()
        found = small.cut(start, self._left_out, below, clock.slice(strategies.SMALL_BOUNDS * self._settings.seconds))
        said = "none is left" if found is None else f"bound {plain(small.bound(found))} on {shown(found)}"
        self._steps.append(Taken("local search for small bounds", time.monotonic() - begun, said))
        self.last, self.below = found, math.inf if found is None else self._over.known_of(found)
        return found
