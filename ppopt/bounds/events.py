"""The event graph: everything that a schedule under tight memory can do, whatever the number of microbatches is.

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

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ppopt.bounds.flow import Flow
from ppopt.op import Kind
from ppopt.pipeline import IntArray

States = npt.NDArray[np.int16]
NEVER = 2**14
MISSED = -1
_BYTES = 2**30
"""Memory that the states of a graph may take."""
_WORD = 4
"""Numbers of a row in a word of 64 bits; rows are made of whole words."""
_BLOCK = 2**13
"""States whose successors are found together, at most."""
_BLOCKS = 32
"""And at most this part of the largest number of states, so that too many are noticed soon."""


@dataclass(frozen=True, eq=False)
class Graph:
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
    behind: States
    """For every state and family, how many operations it is behind the first one."""
    depth: npt.NDArray[np.int32]
    """For every state, how many ends and arrivals there will be of what has begun; these rise among each kind of states."""

    @property
    def states(self) -> int:
        """The number of all states."""
        return len(self.behind)


class _Events:
    """The states of a flow as rows of numbers, and what follows from them.

    A row has for every family how many operations fewer than of the first have started; for every family, what is left of
    one that runs, or ``MISSED`` if its device idles and could have started one before; for every family, the time until its
    last result arrives; and whether no microbatch begins any more.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.families = len(flow.label)
        self.before = [edges[0].before if edges else -1 for edges in flow.edges_into]
        self.delay = [edges[0].lag if edges else 0 for edges in flow.edges_into]
        """By family, the lag of what it waits for; 0 or ``lag`` of that one."""
        self.lag = [0] * self.families
        """By family, the time that its results are on their way to another device."""
        for edge in flow.edges:
            self.lag[edge.before] = max(self.lag[edge.before], edge.lag)
        self.own = [self._ancestor(family) for family in range(self.families)]
        """By family, the last of those before it that are of its device; -1: none."""
        self.forward = [kind == Kind.F for kind in flow.kind]
        self.behind = slice(0, self.families)
        self.left = slice(self.families, 2 * self.families)
        self.way = slice(2 * self.families, 3 * self.families)
        self.closed = 3 * self.families
        self.width = -(-(self.closed + 1) // _WORD) * _WORD

    def _ancestor(self, family: int) -> int:
        before = self.before[family]
        while before >= 0 and self.flow.device[before] != self.flow.device[family]:
            before = self.before[before]
        return before

    def available(self, rows: States, family: int) -> npt.NDArray[np.bool_]:
        """Whether an operation of the family could start: its input is there, and memory for it."""
        before = self.before[family]
        if before < 0:
            found = rows[:, self.closed] == 0
        else:
            arrived = rows[:, family] - rows[:, before] - (rows[:, self.families + before] > 0)
            if self.delay[family]:
                arrived = arrived - (rows[:, 2 * self.families + before] > 0)
            found = arrived > 0
        return np.asarray(found & self.fits(rows, family), dtype=bool)

    def fits(self, rows: States, family: int) -> npt.NDArray[np.bool_]:
        """Whether there is memory for an operation of the family."""
        claimed = sum(held.amount for held in self.flow.held if held.first == family)
        if not claimed or self.flow.limit is None:
            return np.ones(len(rows), dtype=bool)
        device = self.flow.device[family]
        total = np.full(len(rows), claimed, dtype=np.int64)
        for held in self.flow.held:
            if self.flow.device[held.first] == device:
                count = rows[:, held.last] - rows[:, held.first] + (rows[:, self.families + held.last] > 0)
                total += held.amount * count
        return np.asarray(total <= self.flow.limit[device], dtype=bool)

    def after(self, rows: States) -> tuple[States, IntArray, IntArray, IntArray]:
        """All next states; for each, the row that it comes from, the microbatches that begin, and the time."""
        source = np.arange(len(rows), dtype=np.int64)
        begun = np.zeros(len(rows), dtype=np.int64)
        can = [self.available(rows, family) for family in range(self.families)]
        for families in self.flow.families_of:
            busy = (rows[:, [self.families + o for o in families]] > 0).any(axis=1)
            parts = [(rows, source, begun)]
            for family in families:
                chosen = ~busy & can[family][source] & (rows[:, self.families + family] == 0)
                for closing in (0, 1) if self.before[family] < 0 else (0,):
                    new = rows[chosen].copy()
                    self._start(new, family, closing)
                    parts.append((new, source[chosen], begun[chosen] + (self.before[family] < 0)))
            rows, source, begun = (np.concatenate(column) for column in zip(*parts, strict=True))
        can = [c[source] for c in can]
        keep = self._active(rows, can)
        rows, source, begun = rows[keep], source[keep], begun[keep]
        for families in self.flow.families_of:
            idle = ~(rows[:, [self.families + o for o in families]] > 0).any(axis=1)
            for family in families:
                rows[idle & can[family][keep], self.families + family] = MISSED
        self._settle(rows)
        timers = np.concatenate((rows[:, self.left], rows[:, self.way]), axis=1)
        timers[timers <= 0] = NEVER
        elapsed = timers.min(axis=1)
        live = elapsed < NEVER
        rows, source, begun, elapsed = rows[live], source[live], begun[live], elapsed[live]
        running = rows[:, self.left] > 0
        rows[:, self.left] -= np.where(running, elapsed[:, None], 0)
        rows[:, self.way] = np.maximum(rows[:, self.way] - elapsed[:, None], 0)
        ended = running & (rows[:, self.left] == 0)
        rows[:, self.way] = np.where(ended, np.array(self.lag, dtype=np.int16), rows[:, self.way])
        self._settle(rows)
        return rows, source, begun, elapsed.astype(np.int64)

    def depth(self, rows: States) -> npt.NDArray[np.int32]:
        """How many ends and arrivals there will be of what has begun: fewer after every event."""
        waiting = rows[:, self.behind] + (rows[:, self.left] > 0)
        ends = waiting.sum(axis=1, dtype=np.int32)
        arrivals = waiting[:, np.array(self.lag) > 0].sum(axis=1, dtype=np.int32) + (rows[:, self.way] > 0).sum(axis=1)
        return np.asarray(ends + arrivals, dtype=np.int32)

    def _settle(self, rows: States) -> None:
        """Let results count as there that arrive while their device computes."""
        for family, before in enumerate(self.before):
            if self.delay[family]:
                own = [self.families + o for o in self.flow.families_of[self.flow.device[family]]]
                way = rows[:, 2 * self.families + before]
                way[rows[:, own].max(axis=1) >= way] = 0

    def ended(self, rows: States, device: int) -> npt.NDArray[np.bool_]:
        """Whether a device has run everything, and no microbatch begins any more."""
        of_device = list(self.flow.families_of[device])
        left = rows[:, of_device].any(axis=1) | rows[:, [self.families + o for o in of_device]].any(axis=1)
        return np.asarray((rows[:, self.closed] == 1) & ~left, dtype=bool)

    def _start(self, rows: States, family: int, closing: int) -> None:
        rows[:, [self.families + o for o in self.flow.families_of[self.flow.device[family]]]] = 0
        rows[:, self.families + family] = self.flow.duration[family]
        if self.before[family] < 0:
            rows[:, self.behind] += 1
            rows[:, self.closed] = closing
        rows[:, family] -= 1

    def _active(self, rows: States, can: list[npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
        """Whether every device that idles may."""
        arrival = self._arrivals(rows)
        keep = np.ones(len(rows), dtype=bool)
        for families in self.flow.families_of:
            idle = ~(rows[:, [self.families + o for o in families]] > 0).any(axis=1)
            several = sum(self.forward[o] for o in families) > 1
            shortest = np.full(len(rows), NEVER)
            for o in families:
                if not (several and self.forward[o]):
                    shortest = np.where(can[o], np.minimum(shortest, self.flow.duration[o]), shortest)
            some, soon = np.zeros((2, len(rows)), dtype=bool)
            for o in families:
                some |= can[o]
                next_ = (arrival[o] > 0) & (arrival[o] < shortest) & self.fits(rows, o)
                soon |= next_ if self.own[o] < 0 else next_ & (rows[:, o] > rows[:, self.own[o]])
            keep &= ~idle | ~some | soon
        return keep

    def _arrivals(self, rows: States) -> list[IntArray]:
        """Per family, the least time until the input of its next operation can be there; 0: it is."""
        left = [
            rows[:, [self.families + o for o in families]].max(axis=1, initial=0).astype(np.int64)
            for families in self.flow.families_of
        ]
        arrival: list[IntArray] = []
        for family, before in enumerate(self.before):
            if before < 0:
                arrival.append(np.where(rows[:, self.closed] == 0, 0, NEVER).astype(np.int64))
                continue
            busy = left[self.flow.device[before]]
            fresh = np.maximum(arrival[before], busy) + self.flow.duration[before] + self.delay[family]
            running = rows[:, self.families + before] > 0
            moving = rows[:, 2 * self.families + before] if self.delay[family] else np.zeros(len(rows), dtype=np.int16)
            started = rows[:, family] - rows[:, before]
            arrived = started - running - (moving > 0)
            coming = np.where(started - running > 0, moving, rows[:, self.families + before] + self.delay[family])
            arrival.append(np.where(arrived > 0, 0, np.where(started > 0, coming, fresh)).astype(np.int64))
        return arrival


class _Numbered:
    """Different rows, numbered as they come: a hash table, all of whose steps are taken for many rows at once."""

    def __init__(self, width: int, most: int) -> None:
        self.rows = np.empty((most, width), dtype=np.int16)
        self.size = 0
        self.words = self.rows.view(np.uint64)
        self.shift = np.uint64(64 - (2 * most).bit_length())
        self.table = np.full(1 << (2 * most).bit_length(), -1, dtype=np.int32)
        self.factors = np.random.default_rng(0).integers(2**63, size=self.words.shape[1], dtype=np.uint64) * 2 + 1

    def add(self, rows: States) -> npt.NDArray[np.int32] | None:
        """The numbers of the rows, new ones where there are none yet; ``None`` where these are too many."""
        words = np.ascontiguousarray(rows).view(np.uint64)
        hashed = ((words ^ (words >> np.uint64(32))) * self.factors).sum(axis=1, dtype=np.uint64)
        slot = (hashed >> self.shift).astype(np.int64)
        numbers = np.empty(len(rows), dtype=np.int32)
        left = np.arange(len(rows))
        while len(left):
            known = self.table[slot[left]]
            free = left[known < 0]
            if len(free):
                _, first = np.unique(slot[free], return_index=True)
                new = free[first]
                size = self.size + len(new)
                if size > len(self.rows):
                    return None
                self.words[self.size : size] = words[new]
                self.table[slot[new]] = np.arange(self.size, size)
                self.size = size
                known = self.table[slot[left]]
            same = (self.words[known] == words[left]).all(axis=1)
            numbers[left[same]] = known[same]
            left = left[~same]
            slot[left] = (slot[left] + 1) % len(self.table)
        return numbers


def graph_of(flow: Flow, *, span: bool = False, most: int, seconds: float) -> Graph | None:
    """The event graph; ``None`` where it has more than ``most`` states, takes too long or too much memory, or is not defined.

    It is also given up where, of more than a few, half as many states as are done are waiting: so fast only those grow that have
    no end in sight.

    With ``span`` the way to the end takes the span of the route's first device, else the makespan.

    It is defined for one route, positive durations, a memory limit on the first stage's device, and links that pass on a
    result before the next one is made.
    """
    if flow.limit is None or sum(not edges for edges in flow.edges_into) != 1 or min(flow.duration) <= 0:
        return None
    if any(edge.lag > flow.duration[edge.before] for edge in flow.edges) or max(flow.duration) >= NEVER // 4:
        return None
    if not any(arc.after == 0 for arc in flow.arcs):
        return None
    events = _Events(flow)
    begin = time.monotonic()
    last = np.zeros((1, events.width), dtype=np.int16)
    last[0, events.closed] = 1
    known = _Numbered(events.width, min(most, _BYTES // (2 * events.width)))
    known.add(np.zeros_like(last))
    known.add(last)
    blocks: list[tuple[npt.NDArray[Any], ...]] = []
    done = 0
    while done < known.size:
        until = min(known.size, done + min(_BLOCK, 1 + most // _BLOCKS))
        new, source, begun, elapsed = events.after(known.rows[done:until])
        if span:
            new[events.ended(new, flow.device[0])] = last
        target = known.add(new)
        hopeless = until > _BLOCK and 2 * (known.size - until) > until
        if target is None or hopeless or time.monotonic() - begin > seconds:
            return None
        blocks.append(((source + done).astype(np.int32), target, begun > 0, elapsed.astype(np.int16)))
        done = until
    rows = known.rows[: known.size]
    sources, targets, begins, times = (np.concatenate(column) for column in zip(*blocks, strict=True))
    closed, depth = rows[:, events.closed], events.depth(rows)
    order = np.lexsort((depth, closed))
    number = np.empty(len(order), dtype=np.int32)
    number[order] = np.arange(len(order))
    sources = number[sources]
    edges = np.argsort(sources, kind="stable")
    return Graph(
        int((closed == 0).sum()),
        sources[edges],
        number[targets[edges]],
        begins[edges],
        times[edges],
        rows[order, : events.families],
        depth[order],
    )
