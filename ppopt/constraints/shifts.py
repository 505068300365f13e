"""What words over whole families imply together: which operation of one family precedes which of another."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ppopt.constraints import Family, Precede, Word, select

NEVER = 2**40
"""A shift that no microbatch reaches: nothing is known."""


class Shifts:
    """For families X and Y the least s for which ``Precede(X, Y, shift=s)`` follows from ``words``.

    A chain of words X -> Z -> Y adds up their shifts, provided that all of Z is run: only families in ``run`` are passed
    through. Words over other streams are left aside.
    """

    def __init__(self, words: Iterable[Word], run: Iterable[Family]) -> None:
        known = [
            (word.before, word.after, word.shift)
            for word in select(words, Precede)
            if isinstance(word.before, Family) and isinstance(word.after, Family)
            if word.lag >= 0 and word.before.route == word.after.route
        ]
        families = list(dict.fromkeys(family for before, after, _ in known for family in (before, after)))
        self._place = {family: i for i, family in enumerate(families)}
        self._least = np.full((len(families), len(families)), NEVER, dtype=np.int64)
        for before, after, shift in known:
            i, j = self._place[before], self._place[after]
            self._least[i, j] = min(self._least[i, j], shift)
        for family in run:
            via = self._place.get(family)
            if via is not None:
                np.minimum(self._least, self._least[:, via, None] + self._least[None, via, :], out=self._least)

    def __call__(self, before: Family, after: Family) -> int:
        """The least shift; :data:`NEVER` where none is known."""
        i, j = self._place.get(before), self._place.get(after)
        return NEVER if i is None or j is None else int(self._least[i, j])
