"""The state graph: everything that a schedule under tight memory can do, whatever the number of microbatches is.

*States.* At an event (an operation ends, a result arrives) a schedule's future depends on little: for every family how many
operations it is behind the first one, what every device runs and for how much longer, which results are on their way, and
whether more microbatches will begin. Where memory bounds how far families are apart there are finitely many states, whatever the
number of microbatches is. From a state every idle device starts an operation that is available or stays idle; time goes on to the
next event. An edge carries ``r = 1`` if a microbatch begins, and the time ``dt``.

*Active schedules.* Some optimal schedule lets a device idle only if something that it could run arrives before the shortest
operation that it could start now would end: else that operation, which runs later, can be moved here. An input gradient, a
weight gradient or a transfer can always be moved (it needs no memory); a forward only past backwards, so where a device has
forwards of several stages an available forward does not forbid to idle. And what a device could have started before it idled
is not what it goes on with: that could start earlier.

*Arrivals that nobody waits for.* Where the device that a result goes to computes at least until it arrives, it makes no
difference when it arrives: it counts as there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ppopt.bounds.state_events import NEVER, Events, Flags, Numbers, States
from ppopt.bounds.tuning import BoundsTuning
from ppopt.clock import Clock
from ppopt.constraints import FamilyGraph
from ppopt.pipeline import IntArray

MEMORY = 2**29
"""Bytes that the states of a graph may take, and the least times from them too."""
_WORD, _NUMBER = np.dtype("<u8"), np.dtype("<i2")
_EACH = _WORD.itemsize // _NUMBER.itemsize
"""Numbers of a state in a word."""
_BLOCK = 2**13
"""States whose successors are found together, at most."""
_BLOCKS = 32
"""And at most this part of the largest number of states, so that too many are noticed soon. Measured: a graph of more than 30,000
states is given up after 0.5 s instead of 1.3 s."""


@dataclass(frozen=True, eq=False)
class StateGraph:
    """The reachable states and the edges between them, by source.

    First come the states from which more microbatches begin, the empty one first, then the others, the one in which everything
    is done first. Edges along which no microbatch begins lead from a state to one of less ``depth``.
    """

    open: int
    """The number of the states from which more microbatches begin, which is that of the state in which everything is done."""
    source: npt.NDArray[np.int32]
    target: npt.NDArray[np.int32]
    begun: npt.NDArray[np.bool_]
    """Whether a microbatch begins."""
    time: npt.NDArray[np.int16]
    behind: Numbers
    """For every state and family, how many operations it is behind the first one."""
    depth: npt.NDArray[np.int32]
    """For every state, how many ends and arrivals there will be of what has begun; these rise among each kind of states."""

    @property
    def states(self) -> int:
        """The number of all states."""
        return len(self.behind)


class _Numbered:
    """Different states, numbered as they come: a hash table, all of whose steps are taken for many states at once.

    A state is kept in words of 64 bits, so that states that are the same are found to be so fast.
    """

    def __init__(self, size: int, most: int) -> None:
        self.size = 0
        self.words = np.empty((most, -(-size // _EACH)), dtype=_WORD)
        self.shift = np.uint64(64 - (2 * most).bit_length())
        self.table = np.full(1 << (2 * most).bit_length(), -1, dtype=np.int32)
        self.factors = np.random.default_rng(0).integers(2**63, size=self.words.shape[1], dtype=np.uint64) * 2 + 1
        self.numbers = size

    def states(self, first: int, last: int) -> Numbers:
        """Those of these numbers, as a table."""
        return np.ascontiguousarray(self.words[first:last].view(_NUMBER)[:, : self.numbers].T)

    def add(self, table: Numbers) -> npt.NDArray[np.int32] | None:
        """The numbers of the states of a table, new ones where there are none yet; ``None`` where these are too many."""
        words = _packed(table)
        hashed = ((words ^ (words >> np.uint64(32))) * self.factors[:, None]).sum(axis=0, dtype=np.uint64)
        slot = (hashed >> self.shift).astype(np.int64)
        words = np.ascontiguousarray(words.T)
        numbers = np.empty(len(slot), dtype=np.int32)
        left = np.arange(len(slot), dtype=np.int32)
        while len(left):
            known = self.table[slot]
            free = np.flatnonzero(known < 0)
            if len(free):
                self.table[slot[free]] = left[free]  # of several that want a place one has it
                new = free[self.table[slot[free]] == left[free]]
                size = self.size + len(new)
                if size > len(self.words):
                    return None
                self.words[self.size : size] = words.take(left[new], axis=0)
                self.table[slot[new]] = np.arange(self.size, size)
                self.size = size
                known[free] = self.table[slot[free]]
            same = (self.words.take(known, axis=0) == words.take(left, axis=0)).T.copy().all(axis=0)
            numbers[left[same]] = known[same]
            others = np.flatnonzero(~same)
            left, slot = left[others], (slot[others] + 1) % len(self.table)
        return numbers


def _packed(table: Numbers) -> npt.NDArray[np.uint64]:
    """The columns of a table as columns of words."""
    packed = np.zeros((-(-len(table) // _EACH), table.shape[1]), dtype=np.uint64)
    for place in range(_EACH):
        some = table[place::_EACH].view(np.uint16).astype(np.uint64)
        packed[: len(some)] |= some << np.uint64(8 * _NUMBER.itemsize * place)
    return packed


def state_graph_of(graph: FamilyGraph, *, span: bool = False, most: int, clock: Clock, tuning: BoundsTuning) -> StateGraph | None:
    """The state graph; ``None`` where it has more than ``most`` states, takes too long or too much memory, or is not defined.

    It is also given up where, after a part of them, half as many states as are done are waiting: so fast only those grow that
    have no end in sight.

    With ``span`` the way to the end takes the span of the route's first device, else the makespan.

    It is defined for one route, positive durations, a memory limit on the first stage's device, and links that pass on a
    result before the next one is made.
    """
    if sum(not into for into in graph.into) != 1 or min(graph.duration) <= 0 or max(graph.duration) >= NEVER // 4:
        return None
    if any(before.lag > graph.duration[before.before] for before in graph.precedences):
        return None
    if not any(wait.after == 0 for wait in graph.implied):
        return None
    events = Events(graph)
    last = np.zeros((events.size, 1), dtype=np.int16)
    last[-1] = 1
    known = _Numbered(events.size, min(most, MEMORY // (_WORD.itemsize * -(-events.size // _EACH))))
    known.add(np.zeros_like(last))
    known.add(last)
    blocks: list[tuple[npt.NDArray[Any], ...]] = []
    done = 0
    while done < known.size:
        until = min(known.size, done + min(_BLOCK, 1 + most // _BLOCKS))
        table = known.states(done, until)
        after = events.after(table)
        if span:
            after.table[:, events.ended(after.table, graph.owner[0])] = last
        target = known.add(after.table)
        clock.charge((until - done) * tuning.state_seconds)
        hopeless = until > max(_BLOCK, most // tuning.hopeless_after) and 2 * (known.size - until) > until
        if target is None or hopeless or clock.over:
            return None
        edges = np.argsort(after.source.astype(np.int16), kind="stable")  # of few bits: in no more time than to read them
        count = np.bincount(after.source, minlength=until - done)
        depth = events.depth(States.of(table, events.families))
        blocks.append((count, target[edges], after.begun[edges], after.elapsed[edges], depth, table[-1]))
        done = until
    return _numbered_anew(known, events.families, *(np.concatenate(column) for column in zip(*blocks, strict=True)))


def _numbered_anew(
    known: _Numbered,
    families: int,
    count: IntArray,
    target: npt.NDArray[np.int32],
    begun: Flags,
    time: Numbers,
    depth: npt.NDArray[np.int32],
    closed: Numbers,
) -> StateGraph:
    """The graph of states and the edges from each, ``count`` of them, with its own numbers."""
    order = np.argsort(depth + closed * (1 + depth.max()), kind="stable")
    number = np.empty(len(order), dtype=np.int32)
    number[order] = np.arange(len(order))
    begin = (count.cumsum() - count)[order]
    count = count[order]
    edges = np.repeat(begin - (count.cumsum() - count), count) + np.arange(len(target))
    source = np.repeat(np.arange(len(order), dtype=np.int32), count)
    return StateGraph(
        int((closed == 0).sum()),
        source,
        number[target[edges]],
        begun[edges],
        time[edges],
        known.words.take(order, axis=0).view(_NUMBER)[:, :families],
        depth[order],
    )
