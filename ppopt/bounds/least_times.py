"""Least times through a state graph, for any number of microbatches, and the ways that take them.

*Least times.* Let ``w[n]`` be the least times to the end, by state, with ``n`` microbatches that have yet to begin. They follow
from ``w[n - 1]`` alone; adding the same to all of ``w[n - 1]`` adds it to all of ``w[n]``, and nothing in ``w[n]`` falls where
something in ``w[n - 1]`` rises. So what ``step`` more microbatches cost at least, from whatever state, they cost again and again:

    w[n] >= w[n - step] + rise  in every state   =>   w[n + j] >= w[n - step + j] + rise   for every j >= 0,

a bound for any number of microbatches. It is the optimum where the way that takes ``w[n]`` comes to a state twice and by the
second time has lost no more than that: what is between is repeated as often as needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ppopt.bounds.state_graph import MEMORY, StateGraph
from ppopt.bounds.tuning import BoundsTuning
from ppopt.clock import Clock
from ppopt.compiled import loop
from ppopt.pipeline import IntArray

Times = npt.NDArray[np.int32]

_FAR = 2**30
"""The time of a way that there is not."""
_EDGE, _ROW = 4e-9, 1e-5
"""Deterministic seconds of a row for every edge, and for the row itself; about what they take."""


@loop(2.5e-7, ("row",))
def add_row(
    first: int, shift: int, low: int, high: int, at: Any, target: Any, begun: Any, time: Any, before: Any, row: Any
) -> None:
    """The least times of the states from ``first`` on, of which ``row`` has those from ``shift`` on, in order of their depth.

    The edges of the k-th of these begin at ``at[k]``. Where a microbatch begins, ``before`` has the times from their targets on,
    if these are from ``low`` to ``high``, that included, that excluded; else there is no such edge.
    """
    for place in range(len(at) - 1):
        least = _FAR
        for edge in range(at[place], at[place + 1]):
            to = target[edge]
            if not begun[edge]:
                least = min(least, time[edge] + row[to - shift])
            elif low <= to < high:
                least = min(least, time[edge] + before[to - low])
        row[first - shift + place] = least


class LeastTimes:
    """Least times to the end: ``rows[n]`` with ``n`` microbatches that have yet to begin, by open state; ``rows[0]`` by closed.

    ``_FAR`` where there is no way: too many activations of some stages can leave no room for what would release them.
    """

    def __init__(self, graph: StateGraph) -> None:
        self.graph = graph
        self._at = np.searchsorted(graph.source, np.arange(graph.states + 1, dtype=np.int32))
        closed = np.full(graph.states - graph.open, _FAR, dtype=np.int32)
        closed[0] = 0
        self.rows: list[Times] = []
        self._fill(graph.open + 1, graph.open, (0, 0), closed, closed)

    def _fill(self, first: int, shift: int, begins: tuple[int, int], before: Times, row: Times) -> None:
        """A row of the states from ``shift`` on, of which those before ``first`` are known."""
        graph, last = self.graph, shift + len(row)
        at = self._at[first : last + 1]
        largest = _FAR + 2**15
        edges = (graph.target, graph.begun, graph.time)
        add_row(int(at[-1] - at[0]), largest, first, shift, *begins, at, *edges, before, row)
        self.rows.append(row)

    def add(self) -> None:
        """The row of one more microbatch."""
        graph = self.graph
        begins = (0, graph.open) if len(self.rows) > 1 else (graph.open, graph.states)
        self._fill(0, 0, begins, self.rows[-1], np.full(graph.open, _FAR, dtype=np.int32))

    @property
    def seconds(self) -> float:
        """Of deterministic time for a row."""
        return _EDGE * len(self.graph.source) + _ROW

    def rise(self, step: int, stride: int = 1) -> int:
        """By how much the last row is above that ``step`` before at least, in every ``stride``-th state."""
        row, before = self.rows[-1][::stride], self.rows[-1 - step][::stride]
        return int((row - before).min(where=row < _FAR, initial=_FAR))

    @property
    def longest(self) -> int:
        """The largest number of the last row."""
        row = self.rows[-1]
        return int(row.max(where=row < _FAR, initial=0))

    def way(self, microbatches: int) -> Way:
        """A shortest way from the empty state."""
        graph = self.graph
        state, left = 0, microbatches
        states, lefts, begun = [state], [left], []
        while state != graph.open:
            edges = slice(self._at[state], self._at[state + 1])
            columns = (graph.time[edges].tolist(), graph.target[edges].tolist(), graph.begun[edges].tolist())
            options = []
            for time, target, begins in zip(*columns, strict=True):
                after = left - begins
                if (target >= graph.open) == (after == 0):
                    rest = int(self.rows[after][target - (graph.open if after == 0 else 0)])
                    options.append((time + rest, target, begins))
            _, state, begins = min(options)
            left -= begins
            states.append(state)
            lefts.append(left)
            begun.append(begins)
        passed = graph.behind(np.array(states))
        starts = passed[:-1] + np.array(begun, dtype=np.int16)[:, None] - passed[1:]
        times = [int(self.rows[n][s - (graph.open if n == 0 else 0)]) for s, n in zip(states, lefts, strict=True)]
        return Way(np.array(states), np.array(lefts), times[0] - np.array(times), starts)


class Part(NamedTuple):
    """A part of a way: time per microbatch, microbatches that begin, and the places of its first and last state."""

    period: Fraction
    begun: int
    first: int
    last: int


class Way(NamedTuple):
    """A way through the graph: its states, microbatches yet to begin there, and when; per event and family what starts then."""

    states: IntArray
    left: IntArray
    time: IntArray
    starts: IntArray

    def parts(self, longest: int) -> list[Part]:
        """What could be repeated: parts that end in the state in which they begin, with at most ``longest`` microbatches."""
        found: list[Part] = []
        visits: dict[int, list[int]] = {}
        for last, state in enumerate(self.states.tolist()):
            before = visits.setdefault(state, [])
            for first in reversed(before):
                begun = int(self.left[first] - self.left[last])
                if begun > longest:
                    break
                found.append(Part(Fraction(int(self.time[last] - self.time[first]), begun), begun, first, last))
            before.append(last)
        return found

    def repeated(self, more: int, longest: int) -> Way | None:
        """The shortest one with ``more`` microbatches that repeats a part of this; ``None`` where none can be."""
        period, begun, a, b = min((part for part in self.parts(longest) if more % part.begun == 0), default=(None, 0, 0, 0))
        if period is None:
            return None
        times, later = more // begun, int(period * begun)
        turns = np.repeat(np.arange(1, times + 1), b - a)
        return Way(
            np.concatenate((self.states[:b], np.tile(self.states[a:b], times), self.states[b:])),
            np.concatenate((self.left[:b] + more, np.tile(self.left[a:b], times) + more - turns * begun, self.left[b:])),
            np.concatenate((self.time[:b], np.tile(self.time[a:b], times) + turns * later, self.time[b:] + times * later)),
            np.concatenate((self.starts[:b], np.tile(self.starts[a:b], (times, 1)), self.starts[b:])),
        )


@dataclass(frozen=True, eq=False)
class Found:
    """No way takes less than ``time``, perhaps because of a ``period`` per microbatch. ``way``: a short one, if any."""

    time: int
    period: Fraction | None
    way: Way | None


def least_time(graph: StateGraph, microbatches: int, clock: Clock, tuning: BoundsTuning) -> Found | None:
    """The least time in which the microbatches are done, or a bound on it; ``None``: not in time."""
    times = LeastTimes(graph)
    bound, period = -1, Fraction(0)
    way: Way | None = None
    next_try = 0
    while not clock.over and len(times.rows) * times.rows[-1].nbytes < MEMORY:
        times.add()
        clock.charge(times.seconds)
        n = len(times.rows) - 1
        if n == microbatches:
            return Found(int(times.rows[n][0]), None, times.way(n))
        if times.longest > _FAR // 2:
            break
        for step in range(1, min(tuning.longest, n - 1) + 1):
            turns = -(-(microbatches - n) // step)
            known = int(times.rows[microbatches - turns * step][0])
            if known + turns * times.rise(step, 1 + graph.open // 256) > bound:
                rise = times.rise(step)
                if known + turns * rise > bound:
                    bound, period, next_try = known + turns * rise, Fraction(rise, step), n
        if n >= next_try and bound >= 0:
            lengths = {part.begun for part in times.way(n).parts(tuning.longest) if part.period == period}
            for step in sorted(lengths)[:2] or [period.denominator]:
                few = n - (n - microbatches) % step
                repeated = times.way(few).repeated(microbatches - few, tuning.longest)
                if repeated is not None and (way is None or repeated.time[-1] < way.time[-1]):
                    way = repeated
            next_try = n + 1 + n // 4
        if way is not None and way.time[-1] == bound:
            return Found(bound, period, way)
    return None if bound < 0 else Found(bound, period, way)
