"""When the jobs of an integer program can start, and which of them are ordered in every schedule."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.constraints import Exclusive, Word, expand
from ppopt.ilp.jobs import Jobs
from ppopt.pipeline import IntArray

BoolArray: TypeAlias = npt.NDArray[np.bool_]


class Impossible(ValueError):
    """The words leave no schedule within the horizon; seen while the program was built."""


@dataclass(frozen=True, eq=False)
class Windows:
    """By job, in ticks: when it can start, and what it precedes."""

    horizon: int
    """Every job ends by this time."""
    earliest: IntArray
    latest: IntArray
    """``[job]``: its earliest and its latest start."""
    tail: IntArray
    """``[job]``: the time that surely follows its end, up to the end of the schedule."""
    left_out: tuple[int, ...]
    """The optional jobs that do not fit the horizon."""
    first: BoolArray
    """``[a, b]``: job a is before job b in every schedule."""


class _Edges(NamedTuple):
    """Instances of ``Precede`` between jobs that are always run: job ``after`` starts ``lag`` ticks after ``before`` ends."""

    before: IntArray
    after: IntArray
    lag: IntArray


def windows_of(jobs: Jobs, words: Sequence[Word], *, objective: str, horizon: int) -> Windows:
    """Windows from the longest chains of jobs that are always run; what cannot fit the horizon is left out, if it may be.

    Raises:
        Impossible: nothing fits the horizon.
    """
    edges = _edges(jobs, words)
    length = jobs.least
    chains = list(zip(*(column.tolist() for column in edges), strict=True))
    earliest = _longest(jobs.lead, [(a, b, int(length[a]) + lag) for a, b, lag in chains])
    end = jobs.tail if objective == "makespan" else np.zeros_like(jobs.tail)
    tail = _longest(end, [(b, a, int(length[b]) + lag) for a, b, lag in chains])
    latest = horizon - length - tail
    too_long = latest < earliest
    if (too_long & jobs.always).any():
        raise Impossible("a chain of operations is longer than the horizon")
    latest = np.maximum(latest, earliest)
    never = (earliest[None, :] + length[None, :] > latest[:, None]) & (length[None, :] > 0)
    first = _order(jobs, edges, never & _apart(jobs, words))
    return Windows(horizon, earliest, latest, tail, tuple(np.flatnonzero(too_long).tolist()), first)


def _edges(jobs: Jobs, words: Iterable[Word]) -> _Edges:
    before, after, lag = expand(jobs.pipeline, words)
    before, after = jobs.job[before], jobs.job[after]
    known = (before >= 0) & (after >= 0)
    always = jobs.always
    sure = known & always[before] & always[after]
    return _Edges(before[sure], after[sure], lag[sure])


def _apart(jobs: Jobs, words: Iterable[Word]) -> BoolArray:
    """``[a, b]``: the two jobs cannot run at one time, as they share a device or a link and are no pair."""
    apart = np.zeros((jobs.count, jobs.count), dtype=bool)
    for word in words:
        if isinstance(word, Exclusive):
            mine = jobs.on(word)
            apart[np.ix_(mine, mine)] = True
    for forward, backward, _ in jobs.couples:
        apart[forward, backward] = apart[backward, forward] = False
    return apart


def _order(jobs: Jobs, edges: _Edges, by_window: BoolArray) -> BoolArray:
    """``[a, b]``: job a is before job b in every schedule, by chains of ``Precede`` and by the windows of two jobs."""
    first = np.zeros_like(by_window)
    first[edges.before, edges.after] = True
    first |= by_window
    first &= jobs.always[:, None] & jobs.always[None, :]
    np.fill_diagonal(first, False)
    for via in range(jobs.count):
        first |= first[:, via, None] & first[None, via, :]
    if first.diagonal().any():
        raise Impossible("operations wait for each other")
    return first


def _longest(begin: IntArray, edges: Sequence[tuple[int, int, int]]) -> IntArray:
    """``[node]``: the longest path that leads to it; ``begin``: the length with which a path begins there.

    Raises:
        Impossible: the edges ``(from, to, length)`` have a cycle.
    """
    count = len(begin)
    following: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    waits = [0] * count
    for a, b, length in edges:
        following[a].append((b, length))
        waits[b] += 1
    longest = begin.copy()
    ready = deque(node for node in range(count) if not waits[node])
    done = 0
    while ready:
        node = ready.popleft()
        done += 1
        for after, length in following[node]:
            longest[after] = max(longest[after], longest[node] + length)
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)
    if done < count:
        raise Impossible("operations wait for each other")
    return longest
