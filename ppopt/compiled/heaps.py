"""Heaps of numbers for inner loops (:mod:`ppopt.compiled`): Python has a list for each, numba one array for all."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Heaps(NamedTuple):
    """Heaps of numbers. Python has a list for each, numba an array for all of them."""

    numbers: Any
    begin: Any
    """Where each begins in ``numbers``."""
    count: Any
    """How many numbers it has."""

    @classmethod
    def of(cls, most: npt.NDArray[np.int64]) -> Heaps:
        """Empty heaps. ``most``: how many numbers each may have."""
        begin = np.concatenate(([0], np.cumsum(most)))
        return cls(np.empty(int(begin[-1]), np.int64), begin, np.zeros(len(most), np.int64))

    def plain(self) -> list[list[int]]:
        """Empty heaps for Python."""
        return [[] for _ in range(len(self.count))]


def count(heap: int, heaps: Any) -> int:
    """How many numbers a heap has."""
    return len(heaps[heap])


def first(heap: int, heaps: Any) -> int:
    """The smallest number of a heap that has some."""
    found: int = heaps[heap][0]
    return found


def push(heap: int, number: int, heaps: Any) -> None:
    """A heap has one number more."""
    heappush(heaps[heap], number)


def pop(heap: int, heaps: Any) -> int:
    """The smallest number of a heap that has some is taken from it."""
    found: int = heappop(heaps[heap])
    return found


def compiled_count(heap: int, heaps: Any) -> int:
    """How many numbers a heap has, in the array of all."""
    found: int = heaps.count[heap]
    return found


def compiled_first(heap: int, heaps: Any) -> int:
    """Its smallest number."""
    found: int = heaps.numbers[heaps.begin[heap]]
    return found


def compiled_push(heap: int, number: int, heaps: Any) -> None:
    """It has one number more, which goes up until the one above it is no larger."""
    begin, at = heaps.begin[heap], heaps.count[heap]
    heaps.count[heap] = at + 1
    while at > 0 and heaps.numbers[begin + (at - 1) // 2] > number:
        heaps.numbers[begin + at] = heaps.numbers[begin + (at - 1) // 2]
        at = (at - 1) // 2
    heaps.numbers[begin + at] = number


def compiled_pop(heap: int, heaps: Any) -> int:
    """Its smallest number is taken from it; the last one goes down from its place."""
    begin, left = heaps.begin[heap], heaps.count[heap] - 1
    found: int = heaps.numbers[begin]
    last = heaps.numbers[begin + left]
    heaps.count[heap] = left
    at, below = 0, 1
    while below < left:
        if below + 1 < left and heaps.numbers[begin + below + 1] < heaps.numbers[begin + below]:
            below += 1
        if heaps.numbers[begin + below] >= last:
            break
        heaps.numbers[begin + at] = heaps.numbers[begin + below]
        at, below = below, 2 * below + 1
    heaps.numbers[begin + at] = last
    return found


HEAPS = ((count, compiled_count), (first, compiled_first), (push, compiled_push), (pop, compiled_pop))
"""Python has a list for each of :class:`Heaps`, and numba one array for all."""
