"""What certificates say of many cuts, in a compiled loop.

A certificate is linear in what lies before the ends of the stages, but for the least of its heads and of its tails
(:mod:`ppopt.bounds.certificates`). So of each end and each number of layers before it a row of a table has what that says of all
these ways, and the rows of a cut's ends are summed up.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ppopt.bounds.many_cuts import AT_ONCE, EXACT, ManyCuts, Row
from ppopt.compiled import available, bare, loop
from ppopt.pipeline import IntArray

FEW = 2**12
"""Cuts of which arrays tell it as quickly, without numba: about 50 ms."""


class CertifiedCuts:
    """The bounds of cuts by what ``many`` has learned behind ``since`` certificates, limits of memory aside.

    Measured: to list cuts of 40 layers in 32 stages (:mod:`ppopt.bounds.halved_cuts`) takes 12 s, with arrays alone 26.
    """

    def __init__(self, many: ManyCuts, since: int = 0) -> None:
        self._many, self._new = many, range(since, many.learned)
        ways, sizes = list[Row](), list[int]()
        for work, heads, tails in many.certified(since):
            ways += [work, *heads, *tails]
            sizes += [len(heads), len(tails)]
        forms = [many.of_ends([(1, way)]) for way in ways]
        tables = np.array(many.time_tables)
        often = np.array([form for form, _ in forms]).reshape(len(ways), len(tables), many.stages - 1).astype(np.int64)
        self._sizes = np.array(sizes, dtype=np.int64)
        self._constants = np.array([constant for _, constant in forms], dtype=np.int64)
        self._table = np.ascontiguousarray(np.einsum("wke,kl->elw", often, tables)).ravel()
        self._shape = many.stages - 1, tables.shape[1], len(ways)
        self._largest = int(np.abs(self._table).max(initial=0)) * many.stages + int(np.abs(self._constants).max(initial=0))

    def bounds(self, ends: IntArray) -> IntArray:
        """In ticks; ``ends``: a row for each cut, where its stages end but for the last one."""
        found = np.zeros(len(ends), dtype=np.int64)
        if len(ends) < FEW or self._largest >= EXACT or not available():
            for at in range(0, len(ends), AT_ONCE):
                found[at : at + AT_ONCE] = self._many.each(ends[at : at + AT_ONCE], self._new).max(axis=1)
            return found
        given = self._shape, self._sizes, self._constants, self._table, np.ascontiguousarray(ends).ravel()
        bound_cuts(len(ends), 3 * self._largest, *given, np.zeros_like(self._constants), found)
        return found


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
