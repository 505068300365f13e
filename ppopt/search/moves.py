"""From cut to cut of the layers: all cuts near one are valued at once, and the best of them is gone to, until none is better.

A move puts ends of stages that follow each other a layer or two elsewhere. From where no move helps the search goes on some moves
away.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.clock import Clock
from ppopt.pipeline import IntArray

Values: TypeAlias = npt.NDArray[np.float64]
Valued: TypeAlias = Callable[[IntArray], Values]
"""How good cuts are, of which it is given the ends, a row for each: less is better."""
Fit: TypeAlias = Callable[[IntArray], npt.NDArray[np.bool_]]
"""Which of some cuts may be gone to on the way to others."""


def every(ends: IntArray) -> npt.NDArray[np.bool_]:
    """All of them."""
    return np.ones(len(ends), dtype=bool)


class Moves:
    """Searches over the cuts of ``layers`` into ``stages``, each of them the ends of its stages, but for the last one."""

    def __init__(self, layers: int, stages: int, chance: random.Random, fit: Fit = every) -> None:
        self.layers, self._chance, self._fit = layers, chance, fit
        self._moves = _moves(stages - 1)

    def best(self, ends: IntArray, valued: Valued, patience: int, clock: Clock) -> tuple[IntArray, float]:
        """The best cut that is found from one on, and its value, once ``patience`` ways from it have led to no better one."""
        best, value = self._down(ends, valued, clock)
        in_vain = 0
        while in_vain < patience and not clock.over:
            found, of_found = self._down(self.away(best), valued, clock)
            in_vain += 1
            if of_found < value:
                best, value, in_vain = found, of_found, 0
        return best, value

    def _down(self, ends: IntArray, valued: Valued, clock: Clock) -> tuple[IntArray, float]:
        """From a cut to better and better ones, until none near it is better."""
        value = float(valued(ends[None, :])[0])
        while not clock.over:
            near = self._near(ends)
            values = valued(near)
            if values.min(initial=value) >= value:
                break
            best = int(np.argmin(values))
            ends, value = near[best], float(values[best])
        return ends, value

    def away(self, ends: IntArray) -> IntArray:
        """A cut some moves away."""
        for _ in range(self._chance.randint(2, 4)):
            near = self._near(ends)
            near = near[self._fit(near)]
            if len(near):
                ends = near[self._chance.randrange(len(near))]
        return ends

    def _near(self, ends: IntArray) -> IntArray:
        """The cuts to which a move leads, none of them with an empty stage."""
        near = ends + self._moves
        return near[np.all(np.diff(edges(near, self.layers), axis=1) > 0, axis=1)]


def edges(ends: IntArray, layers: int) -> IntArray:
    """Where the first stage begins, and where each one ends, a row for each cut."""
    return np.column_stack([np.zeros(len(ends), dtype=np.int64), ends, np.full(len(ends), layers)])


def _moves(ends: int) -> IntArray:
    """Ends that follow each other lie one or two layers elsewhere, all of them in the same direction."""
    moves = []
    for first in range(ends):
        for last in range(first + 1, ends + 1):
            for by in (-1, 1, -2, 2):
                move = np.zeros(ends, dtype=np.int64)
                move[first:last] = by
                moves.append(move)
    return np.array(moves, dtype=np.int64).reshape(len(moves), ends)
