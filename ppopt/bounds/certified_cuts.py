"""What certificates say of many cuts, in a compiled loop.

A cut is given by its ends: how many layers lie before the end of each stage. A certificate says ``min head + work + min tail``
(:mod:`ppopt.bounds.certificates`). Its work, each of its heads and each of its tails is linear in the sums of the layers before
the ends. So there is a table with a row for each end and each number of layers before it: what these layers add to every head,
work and tail. For a cut the rows of its ends are added up, and then the least head and the least tail are taken.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Any

import numpy as np

from ppopt.bounds.many_cuts import AT_ONCE, EXACT, ManyCuts
from ppopt.bounds.many_fillings import Row
from ppopt.compiled import available, bare, loop
from ppopt.pipeline import IntArray

FEW = 2**12
"""Below so many cuts products of arrays are as quick as the loop, and numba is not loaded: about 50 ms."""


class CertifiedCuts:
    """The bounds of cuts by what ``many`` has learned behind ``since`` certificates, limits of memory aside.

    Measured: to list cuts of 40 layers in 32 stages (:mod:`ppopt.bounds.halved_cuts`) takes 12 s, with arrays alone 26.
    """

    def __init__(self, many: ManyCuts, since: int = 0) -> None:
        self._many, self._new = many, range(since, many.learned)

    def bounds(self, ends: IntArray) -> IntArray:
        """In ticks; ``ends``: a row for each cut, where its stages end but for the last one."""
        found = np.zeros(len(ends), dtype=np.int64)
        if not self._new or len(ends) < FEW or not available() or self._largest >= EXACT:
            for at in range(0, len(ends), AT_ONCE):
                found[at : at + AT_ONCE] = self._many.each(ends[at : at + AT_ONCE], self._new).max(axis=1)
            return found
        sizes, constants, table = self._tables
        shape = table.shape[0], table.shape[1], len(constants)
        rows = np.ascontiguousarray(ends).ravel()
        bound_cuts(len(ends), 3 * self._largest, shape, sizes, constants, table.ravel(), rows, np.zeros_like(constants), found)
        return found

    @cached_property
    def _tables(self) -> tuple[IntArray, IntArray, IntArray]:
        """Of each certificate how many heads and tails it has, of each of its ways the constant, and what it has of each end and
        number of layers, ``[end, layers, way]``."""
        ways, sizes = list[Row](), list[int]()
        for work, heads, tails in itertools.islice(self._many.certified(self._new.start), len(self._new)):
            ways += [work, *heads, *tails]
            sizes += [len(heads), len(tails)]
        each, constants = zip(*(self._many.by_layers([way]) for way in ways), strict=True)
        return np.array(sizes, dtype=np.int64), np.array(constants, dtype=np.int64), np.ascontiguousarray(np.stack(each, axis=-1))

    @cached_property
    def _largest(self) -> int:
        """No number of a way is larger."""
        _, constants, table = self._tables
        return int(np.abs(table).max(initial=0)) * self._many.stages + int(np.abs(constants).max(initial=0))


@loop(1e-3, ("sums", "found"))
def bound_cuts(shape: Any, sizes: Any, constants: Any, table: Any, ends: Any, sums: Any, found: Any) -> None:
    """The bounds of some cuts. ``sizes``: of each certificate how many heads and tails it has, which come behind its work;
    ``table``: of each end and each number of layers what each way has; ``sums``: room for a number for each way."""
    places, layers, ways = shape
    constants, table, sums = bare((constants, table, sums))
    for row in range(len(found)):
        for way in range(ways):
            sums[way] = constants[way]
        for place in range(places):
            at = (place * layers + ends[row * places + place]) * ways
            for way in range(ways):
                sums[way] += table[at + way]
        way, best = 0, 0
        for number in range(0, len(sizes), 2):
            value = sums[way]
            way += 1
            for which in range(2):
                least = sums[way]
                for _ in range(sizes[number + which]):
                    least = min(least, sums[way])
                    way += 1
                value += least
            best = max(best, value)
        found[row] = best
