"""What words over whole families imply together: which operation of one family precedes which of another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import TopologicalSorter

import numpy as np

from ppopt.constraints import Family, Precede, Word, select
from ppopt.pipeline import IntArray

NEVER = 2**40
"""A shift that no microbatch reaches: nothing is known."""


class Shifts:
    """For families X and Y the least s for which ``Precede(X, Y, shift=s)`` follows from ``words``.

    A chain of words X -> Z -> Y adds up their shifts, provided that all of Z is run: only families in ``run`` are passed
    through. Words over other streams are left aside.
    """

    def __init__(self, words: Iterable[Word], run: Iterable[Family]) -> None:
        known: dict[int, list[tuple[Family, Family, int]]] = {}
        for word in select(words, Precede):
            before, after = word.before, word.after
            if isinstance(before, Family) and isinstance(after, Family) and word.lag >= 0 and before.route == after.route:
                known.setdefault(before.route, []).append((before, after, word.shift))
        passed: dict[int, list[Family]] = {}
        for family in run:
            passed.setdefault(family.route, []).append(family)
        self._place: dict[Family, int] = {}
        self._least = {route: self._of(words, passed.get(route, ())) for route, words in known.items()}
        """By route ``[before, after]``: no word leads from one route to another."""

    def _of(self, words: Sequence[tuple[Family, Family, int]], run: Iterable[Family]) -> IntArray:
        """The least shifts of one route."""
        families = dict.fromkeys(family for before, after, _ in words for family in (before, after))
        self._place |= {family: i for i, family in enumerate(families)}
        least = np.full((len(families), len(families)), NEVER, dtype=np.int64)
        for before, after, shift in words:
            i, j = self._place[before], self._place[after]
            least[i, j] = min(least[i, j], shift)
        for family in run:
            via = self._place.get(family)
            if via is not None:
                np.minimum(least, least[:, via, None] + least[None, via, :], out=least)
        return least

    def __call__(self, before: Family, after: Family) -> int:
        """The least shift; :data:`NEVER` where none is known."""
        i, j = self._place.get(before), self._place.get(after)
        if i is None or j is None or before.route != after.route:
            return NEVER
        return int(self._least[before.route][i, j])


class Earlier:
    """Which families have ended before which others start, where each has one operation; as far as ``words`` say that.

    Chains as in :class:`Shifts`, but also from one route to another. Words between operations further apart say nothing then.
    """

    def __init__(self, words: Iterable[Word], run: Iterable[Family]) -> None:
        into: dict[Family, list[Family]] = {}
        for word in select(words, Precede):
            if isinstance(word.before, Family) and isinstance(word.after, Family) and word.lag >= 0 and not word.shift:
                into.setdefault(word.after, []).append(word.before)
                into.setdefault(word.before, [])
        self._place = {family: place for place, family in enumerate(into)}
        self._before: dict[Family, int] = {}
        """By family all that end before it, as bits of an integer."""
        passed = set(run)
        for family in TopologicalSorter(into).static_order():
            found = 0
            for before in into[family]:
                found |= 1 << self._place[before] | (self._before[before] if before in passed else 0)
            self._before[family] = found

    def __call__(self, before: Family, after: Family) -> bool:
        """Whether ``before`` surely ends before ``after`` starts, if both are run."""
        place = self._place.get(before)
        return place is not None and self._before.get(after, 0) >> place & 1 == 1
