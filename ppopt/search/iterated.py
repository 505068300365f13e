"""Cut and order improved in turn, from some moves away again and again: iterated local search.

It goes on from the best schedule of all cuts (Lourenço, Martin and Stützle, "Iterated local search", 2003). Its order is run on a
cut some moves away. There tabu search for a better order and local search for a better cut take turns until neither gains. Where
that is not much worse, the next round begins there. Measured for 36 and 40 layers in a loop of 4 on 4 devices: in 20 s the best
takes 3 to 4 % less than what looks at single cuts and into boxes of cuts find in a minute. Each worker has rounds of its own.
Where it is known which cuts may be better, rounds begin on these. Measured for 28 layers: the best known, which took a minute to
find or was not found, is found in 10 s.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Collection
from fractions import Fraction
from threading import Lock

from ppopt import tabu
from ppopt.clock import Clock, Limits, in_threads
from ppopt.constraints import Word
from ppopt.schedule import Schedule
from ppopt.search import tuning
from ppopt.search.choices import Time
from ppopt.search.listed import NOTHING_KNOWN, Promising
from ppopt.search.near_cuts import found_on, value_of
from ppopt.search.order_on_cuts import OrderOnCuts
from ppopt.search.over_cuts import Counts
from ppopt.search.settings import Settings
from ppopt.search.step import Taken
from ppopt.search.whereabouts import at

ORDERED = 1 / 60
"""What one tabu search may take of a first turn. Measured, values after 20 s: with 256 operations 0.025 to 0.1 s are alike and
0.3 s is worse, with 512 a tenth is better than 0.03 and 0.3 s, with 1024 a tenth is better than 0.2 and 0.4 s."""
ACCEPTED = 0.03
"""The next round begins where the last one led if that takes no more than the one before, and a random part of this share of the
best. Measured, values after 15 s, four times each: 36 layers in a loop of 4 on 4 devices, 65,679 to 65,759 with nothing, 65,456
to 65,749 with this, 65,467 to 66,498 with twice as much; another profile 83,355 to 83,808, 83,297 to 83,857, 83,128 to 83,857."""
PATIENCE = 2
"""Ways from the best cut of an order in vain before the search for it is over. Measured: with 8 it takes half as long again."""


class IteratedSearch:
    """Rounds of local search over cuts and orders, for the makespan.

    ``seconds``: of the next turn, twice as long after one in vain; ``spent``: of all so far.
    """

    def __init__(self, settings: Settings, seconds: float, on_cuts: OrderOnCuts) -> None:
        self.seconds, self.spent, self._first = seconds, 0.0, seconds
        self._settings, self._on_cuts = settings, on_cuts
        self._in_vain = 1
        """The number of turns since the last one that found something, without those before which the bound had not risen; before
        the first one 1."""
        self._least: Time = 0
        """The bound at the last turn."""
        self._rounds, self._lock = 0, Lock()
        self._promising = NOTHING_KNOWN
        self._begun_on: Counter[Counts] = Counter()
        """How many rounds began on each."""
        self._best: Schedule
        """That of all workers."""

    def useful(self, best: Schedule, words: Collection[Word]) -> bool:
        """Whether it can go on from the best schedule; ``words``: what binds beside the rules on its cut."""
        return not words and self._on_cuts.useful(best)

    def due(self, best: Schedule, words: Collection[Word], others: float) -> bool:
        """Whether a turn comes next: after one that found something at once, else once all else has taken so long (``others``,
        in seconds) as all turns may. While the bound rises and turns are in vain, they may take half as long, then a
        third, and so on. Never where it is not :meth:`useful`."""
        return self._in_vain * (self.spent + self.seconds) <= others and self.useful(best, words)

    def again(self) -> None:
        """Let the next turn come at once, as if the last one had found something: more is known of where to begin."""
        self._in_vain, self.seconds = 0, self._first

    def improved(
        self, best: Schedule, least: Time, clock: Clock, steps: list[Taken], promising: Promising = NOTHING_KNOWN
    ) -> Schedule:
        """A better schedule than ``best`` on whatever cut, or ``best``; none takes less than ``least`` (the user's unit).

        ``promising``: where a better one may be. Rounds begin on one of these after the other; where it may be elsewhere, too,
        every other round does, once on each.
        """
        begun, own, rounds = time.monotonic(), clock.slice(self.seconds), self._rounds
        self._best, self._promising = best, promising
        with at("orders and cuts in turn"):
            self._go_on(least, own)
        found = self._best
        if found is not best:
            self.again()
        else:
            self._in_vain, self.seconds = max(self._in_vain + (least > self._least), 1), 2 * self.seconds
        self._least = least
        self.spent += own.spent
        said = "nothing found" if found is best else found_on(found, "makespan")
        whence = "some moves away" if promising.everywhere else "cuts that are left"
        name = f"orders and cuts in turn, {self._rounds - rounds} times from {whence}"
        steps.append(Taken(name, time.monotonic() - begun, said))
        return found

    def _go_on(self, least: Time, clock: Clock) -> None:
        """Rounds of all workers, until the clock is over or nothing takes less."""
        in_threads(lambda worker: self._in_turn(worker, least, clock), Limits(clock, 0.0, self._settings.workers))

    def _in_turn(self, worker: int, least: Time, clock: Clock) -> None:
        """Rounds of one worker, from the best on, until any of them comes to ``least``."""
        best = current = self._best
        chance = random.Random(f"{self._settings.seed}-{worker}-{self._rounds}")
        while not clock.over and value_of(best, "makespan") > least:
            with self._lock:
                self._rounds += 1
                number = self._rounds
                counts = self._begins(number)
            other = self._round(current, counts, number, least, clock)
            with self._lock:
                if other is not None and value_of(other, "makespan") < value_of(self._best, "makespan"):
                    self._best = other
                best = self._best
            more = ACCEPTED * chance.random() * float(value_of(best, "makespan"))
            if other is not None and value_of(other, "makespan") <= value_of(current, "makespan") + more:
                current = other

    def _begins(self, number: int) -> Counts | None:
        """On which cut the round of that number begins; ``None``: some moves away."""
        cuts, everywhere = self._promising
        counts = min(cuts, key=self._begun_on.__getitem__, default=None)  # of equals the first
        if counts is None or (everywhere and (number % 2 or self._begun_on[counts])):
            return None
        self._begun_on[counts] += 1
        return counts

    def _round(self, current: Schedule, counts: Counts | None, number: int, least: Time, clock: Clock) -> Schedule | None:
        """Where local search leads from a cut, or from some moves away, in the round of that number; ``None``: nowhere within
        memory."""
        clock.charge(tuning.SCHEDULED * current.pipeline.index.computations)
        here = self._on_cuts.away(current) if counts is None else self._on_cuts.on(current, counts)
        if here is not None and not here.within_memory:
            here = self._on_cuts.best(here, clock, PATIENCE)
        if here is None or not here.within_memory:
            return None
        value: Fraction | None = None
        while not clock.over and (value is None or value_of(here, "makespan") < value):
            value = value_of(here, "makespan")
            here = self._on_cuts.best(self._ordered(here, number, least, clock), clock, PATIENCE)
        return here

    def _ordered(self, schedule: Schedule, number: int, least: Time, clock: Clock) -> Schedule:
        """A better order on the same cut, or the schedule."""
        limits = Limits(clock.slice(self._first * ORDERED), 0.0, 1)
        lower = math.ceil(least * schedule.pipeline.ticks.per_unit)
        seed = self._settings.seed + number
        return tabu.improved(schedule, objective="makespan", lower=lower, limits=limits, seed=seed).schedule or schedule
