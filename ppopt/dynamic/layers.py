"""The states of one direction of time, layer by layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ppopt.bounds.shaving import Windows
from ppopt.clock import Clock, Limits, in_threads
from ppopt.constraints import FamilyGraph
from ppopt.dynamic.loop import expand, judge, merge
from ppopt.dynamic.tables import Tables
from ppopt.pipeline import IntArray

MOST = 2**18
"""States in a layer at most: some fifty megabytes on 4 devices."""
AT_LEAST = 250
"""States in a layer for each thread. Measured: a thread takes a tenth of a millisecond to begin, as long as thirty states."""
SECONDS = 1.3e-6
"""Deterministic seconds for each state that is looked at, and each that may follow. Measured on an idle machine."""


class Layers:
    """The states where the same number of operations has started, from none on: a *layer* after the other.

    ``depth``: that number; ``number``: of states there. ``widest``: more are not kept in a layer (a *beam*), but those that leave
    the machines the most time by Jackson's rule, all together; ``whole``: whether all were kept so far.
    """

    def __init__(self, graph: FamilyGraph, windows: Windows, widest: int | None = None) -> None:
        self.widest, self.whole = widest, True
        self._tables = tables = Tables(graph, windows)
        self._rows = tables.beginning()
        self.depth, self.number = 0, 1
        self._operations = tables.families * tables.count
        self._before: list[tuple[IntArray, IntArray]] = []
        """For each state of each layer behind the first its place in the one before, and the family that started."""
        self.given_up = False
        """Whether a layer has too many states."""

    @property
    def found(self) -> bool:
        """Whether all operations can start in time."""
        return self.number > 0 and self.depth == self._operations

    @property
    def refuted(self) -> bool:
        """Whether they cannot, as no state is left."""
        return not self.number and self.whole

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to be found."""
        return not self.number or self.given_up or self.found

    def advance(self, limits: Limits) -> None:
        """Find the next layer; where the clock is over before that, nothing changes."""
        parts = limits.threads if self.number > AT_LEAST * limits.threads else 1
        parts_of = [range(self.number * i // parts, self.number * (i + 1) // parts) for i in range(parts)]
        found = [_Next(self._tables, self._rows, some, MOST // parts) for some in parts_of]
        in_threads(lambda number: found[number].find(limits.clock), replace(limits, workers=parts))
        if any(part.given_up for part in found):
            self.given_up = True
        elif all(part.complete for part in found):
            first = found[0]
            for other in found[1:]:
                first.merge(other)
            self._rows, parent, chosen = first.kept()
            if self.widest is not None and len(parent) > self.widest:
                best = self._most_slack(self.widest, limits.clock)
                self._rows = self._rows.reshape(-1, self._tables.width)[best].ravel()
                parent, chosen, self.whole = parent[best], chosen[best], False
            self._before.append((parent, chosen))
            self.depth, self.number = self.depth + 1, len(parent)

    def _most_slack(self, number: int, clock: Clock) -> IntArray:
        """The places of so many states that leave the machines the most time."""
        tables = self._tables
        slacks, sizes = _zeros(len(self._rows) // tables.width), (*tables.sizes, 0)  # without a table of states
        judge(len(slacks), tables.largest, sizes, tables.rules, tables.windows, self._rows, tables.scratch(), slacks)
        clock.charge(SECONDS * len(slacks))
        return np.argsort(-slacks, kind="stable")[:number]

    @property
    def least(self) -> int:
        """When all has ended at the earliest, where it can: of two states the one is left out that ends no earlier."""
        return int(self._ends.min())

    def started(self) -> list[int]:
        """The families whose operations start, one after the other, where all ends at the earliest."""
        families, at = list[int](), int(self._ends.argmin())
        for parent, chosen in reversed(self._before):
            families.append(int(chosen[at]))
            at = int(parent[at])
        return families[::-1]

    @property
    def _ends(self) -> IntArray:
        """When all has ended, for each state of the last layer."""
        ends: IntArray = self._tables.free(self._rows).max(axis=1)
        return ends


class _Next:
    """The states behind some of a layer."""

    def __init__(self, tables: Tables, rows: IntArray, some: range, most: int) -> None:
        self._tables, self._before, self._most = tables, rows, most
        room = 4 * len(some) + 8 * tables.families
        self._sizes = *tables.sizes, 1 << max(4 * len(some), 2**8).bit_length()
        self._table = np.full(self._sizes[-1], -1, dtype=np.int64)
        self._rows, (self._parent, self._chosen, self._chain) = _zeros(room * tables.width), (_zeros(room) for _ in range(3))
        self._state, self._scratch = np.array([some.start, some.stop, 0, 0], dtype=np.int64), tables.scratch()
        self.given_up = False

    @property
    def complete(self) -> bool:
        """Whether all states were looked at."""
        return bool(self._state[0] == self._state[1])

    def find(self, clock: Clock) -> None:
        """Until they are complete, there are too many, or the clock is over."""
        tables, state = self._tables, self._state
        given = self._sizes, tables.rules, tables.windows, tables.order, self._before
        while not self.complete and not clock.over:
            if state[2] > len(self._parent) - tables.families:
                self._make_room(len(self._parent))
            often = int(state[1] - state[0])
            expand(often, tables.largest, *given, *self._found, self._scratch, state)
            clock.charge(SECONDS * int(state[3]))
            if state[2] > self._most:
                self.given_up = True
                return

    def merge(self, other: _Next) -> None:
        """With what another part has found."""
        number = int(other._state[2])
        if self._state[2] + number > len(self._parent):
            self._make_room(number)
        others = np.concatenate([other._parent[:number], other._chosen[:number]])
        given = self._sizes, self._tables.rules, other._rows, others
        merge(number, self._tables.largest, *given, *self._found, self._scratch, self._state)

    def kept(self) -> tuple[IntArray, IntArray, IntArray]:
        """The states that are left, and for each its place in the layer before and the family that started."""
        kept = np.flatnonzero(self._parent[: self._state[2]] >= 0)
        rows = self._rows.reshape(-1, self._tables.width)[kept].ravel()
        return rows, self._parent[kept].astype(np.int32), self._chosen[kept].astype(np.int32)

    @property
    def _found(self) -> tuple[IntArray, ...]:
        return self._rows, self._parent, self._chosen, self._chain, self._table

    def _make_room(self, number: int) -> None:
        """Make room for so many more."""
        self._rows = np.append(self._rows, _zeros(number * self._tables.width))
        self._parent, self._chosen, self._chain = (
            np.append(each, _zeros(number)) for each in (self._parent, self._chosen, self._chain)
        )


def _zeros(number: int) -> IntArray:
    return np.zeros(number, dtype=np.int64)
