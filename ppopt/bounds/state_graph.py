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

from ppopt.bounds.tuning import BoundsTuning
from ppopt.clock import Clock
from ppopt.constraints import FamilyGraph
from ppopt.op import Kind
from ppopt.pipeline import IntArray

States = npt.NDArray[np.int16]
NEVER = 2**14
"""A time that does not come, among those of a row."""
MISSED = -1
"""What is left of an operation that could have started and has not."""
MEMORY = 2**29
"""Bytes that the states of a graph may take, and the least times from them too."""
_WORD = np.dtype(np.uint64).itemsize // np.dtype(np.int16).itemsize
"""Numbers of a row in a word of 64 bits; rows are made of whole words."""
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
    behind: States
    """For every state and family, how many operations it is behind the first one."""
    depth: npt.NDArray[np.int32]
    """For every state, how many ends and arrivals there will be of what has begun; these rise among each kind of states."""

    @property
    def states(self) -> int:
        """The number of all states."""
        return len(self.behind)


class _Events:
    """The states of a graph of families as rows of numbers, and what follows from them.

    A row has for every family how many operations fewer than of the first have started; for every family, what is left of
    one that runs, or ``MISSED`` if its device idles and could have started one before; for every family, the time until its
    last result arrives; and whether no microbatch begins any more.
    """

    def __init__(self, graph: FamilyGraph) -> None:
        self.graph = graph
        self.families = len(graph.families)
        self.behind = slice(0, self.families)
        self.left = slice(self.families, 2 * self.families)
        self.way = slice(2 * self.families, 3 * self.families)
        self.closed = 3 * self.families
        self.width = -(-(self.closed + 1) // _WORD) * _WORD
        self.before = np.array([into[0].before if into else -1 for into in graph.into])
        """By family, what it waits for; -1: nothing, it begins a microbatch."""
        self.delay = np.array([into[0].lag if into else 0 for into in graph.into])
        """By family, the lag of what it waits for; 0 or ``lag`` of that one."""
        self.delayed = np.flatnonzero(self.delay)
        self.first = int(np.flatnonzero(self.before < 0)[0])
        self.lag = np.zeros(self.families, dtype=np.int16)
        """By family, the time that its results are on their way to another device."""
        np.maximum.at(self.lag, self.before[self.delayed], self.delay[self.delayed].astype(np.int16))
        self.duration = np.array(graph.duration, dtype=np.int16)
        self.machines = [machine.families for machine in graph.machines[: graph.owners] if machine.families]
        self.machine = np.empty(self.families, dtype=np.int64)
        """By family, the place of its machine in ``machines``."""
        for place, families in enumerate(self.machines):
            self.machine[list(families)] = place
        most = max(map(len, self.machines))
        self.slots = np.array([[families[min(slot, len(families) - 1)] for families in self.machines] for slot in range(most)])
        """Families by slot and machine; the last one of a machine fills its slots."""
        self.alone = np.array([len(self.machines[place]) == 1 for place in self.machine])
        """By family, whether it has its machine for itself; then it starts as soon as it can."""
        self.alone[self.first] = False
        self.own = np.array([self._ancestor(family) for family in range(self.families)])
        """By family, the last of those before it that are of its device; -1: none."""
        forward = np.array([family.kind == Kind.F for family in graph.families])
        self.binds = ~(forward & (np.bincount(self.machine[forward], minlength=len(self.machines)) > 1)[self.machine])
        """By family, whether a device that could run it idles only for what arrives before it would end."""
        held = sorted(graph.held, key=lambda hold: self.machine[hold.first])
        self.taken, self.given = (np.array([hold[side] for hold in held], dtype=np.int64) for side in (0, 1))
        """What takes memory, by machine, and what gives it back; ``amount`` of it."""
        self.amount = np.array([hold.amount for hold in held], dtype=np.int64)
        self.holding, self.held_at = np.unique(self.machine[self.taken], return_index=True)
        """Machines that hold something, and where theirs begin."""
        claimed = np.zeros(self.families, dtype=np.int64)
        np.add.at(claimed, self.taken, self.amount)
        self.claiming = np.flatnonzero(claimed)
        self.holder = np.searchsorted(self.holding, self.machine[self.claiming])
        """Of those families that take some, the place of their machine in ``holding``."""
        limit = [graph.reservoirs[graph.owner[family]].limit for family in self.claiming.tolist()]
        self.room = np.array(limit, dtype=np.int64) - claimed[self.claiming]
        """And what their device may hold beside."""

    def _ancestor(self, family: int) -> int:
        before = int(self.before[family])
        while before >= 0 and self.machine[before] != self.machine[family]:
            before = int(self.before[before])
        return before

    def per_machine(self, columns: npt.NDArray[Any], ufunc: np.ufunc) -> npt.NDArray[Any]:
        """What is given by row and family put together by row and machine, with a maximum or the like."""
        found = columns[:, self.slots[0]]
        for slot in self.slots[1:]:
            ufunc(found, columns[:, slot], out=found)
        return found

    def available(self, rows: States) -> npt.NDArray[np.bool_]:
        """By row and family, whether an operation could start: its input is there, and memory for it."""
        behind, before = rows[:, self.behind], self.before
        arrived = behind - behind[:, before] - (rows[:, self.left] > 0)[:, before]
        arrived -= (self.delay > 0) & (rows[:, self.way] > 0)[:, before]
        arrived[:, self.first] = rows[:, self.closed] == 0
        return np.asarray((arrived > 0) & self.fits(rows))

    def fits(self, rows: States) -> npt.NDArray[np.bool_]:
        """By row and family, whether there is memory for an operation."""
        found = np.ones((len(rows), self.families), dtype=bool)
        if len(self.taken):
            count = rows[:, self.given] - rows[:, self.taken] + (rows[:, self.families + self.given] > 0)
            held = np.add.reduceat(count * self.amount, self.held_at, axis=1)
            found[:, self.claiming] = held[:, self.holder] <= self.room
        return found

    def busy(self, rows: States) -> npt.NDArray[np.bool_]:
        """By row and machine."""
        return np.asarray(self.per_machine(rows[:, self.left], np.maximum) > 0)

    def after(self, rows: States) -> tuple[States, IntArray, IntArray, IntArray]:
        """All next states; for each, the row that it comes from, the microbatches that begin, and the time."""
        source = np.arange(len(rows), dtype=np.int64)
        begun = np.zeros(len(rows), dtype=np.int64)
        can = self.available(rows)
        start = can & (rows[:, self.left] == 0) & ~self.busy(rows)[:, self.machine]
        alone = start & self.alone
        rows = rows.copy()
        rows[:, self.left] = np.where(alone, self.duration, rows[:, self.left])
        rows[:, self.behind] -= alone
        start &= ~self.alone
        for place in np.flatnonzero(self.per_machine(start, np.logical_or).any(axis=0)).tolist():
            parts = [(rows, source, begun)]
            for family in self.machines[place]:
                chosen = start[source, family]
                for closing in (0, 1) if family == self.first else (0,):
                    new = rows[chosen]
                    self._start(new, family, closing)
                    parts.append((new, source[chosen], begun[chosen] + (family == self.first)))
            rows, source, begun = (np.concatenate(column) for column in zip(*parts, strict=True))
        can = can[source]
        idle = ~self.busy(rows)
        keep = self._active(rows, can, idle)
        rows, source, begun, missed = rows[keep], source[keep], begun[keep], (can & idle[:, self.machine])[keep]
        rows[:, self.left][missed] = MISSED
        self._settle(rows)
        timers = rows[:, self.left.start : self.way.stop].copy()
        timers[timers <= 0] = NEVER
        elapsed = timers.min(axis=1)
        live = elapsed < NEVER
        rows, source, begun, elapsed = rows[live], source[live], begun[live], elapsed[live]
        running = rows[:, self.left] > 0
        rows[:, self.left] -= running * elapsed[:, None]
        rows[:, self.way] = np.maximum(rows[:, self.way] - elapsed[:, None], 0)
        ended = running & (rows[:, self.left] == 0)
        rows[:, self.way] = np.where(ended, self.lag, rows[:, self.way])
        self._settle(rows)
        return rows, source, begun, elapsed.astype(np.int64)

    def depth(self, rows: States) -> npt.NDArray[np.int32]:
        """How many ends and arrivals there will be of what has begun: fewer after every event."""
        waiting = rows[:, self.behind] + (rows[:, self.left] > 0)
        ends = waiting.sum(axis=1, dtype=np.int32)
        arrivals = waiting[:, self.lag > 0].sum(axis=1, dtype=np.int32) + (rows[:, self.way] > 0).sum(axis=1)
        return np.asarray(ends + arrivals, dtype=np.int32)

    def _settle(self, rows: States) -> None:
        """Let results count as there that arrive while their device computes."""
        way = 2 * self.families + self.before[self.delayed]
        left = self.per_machine(rows[:, self.left], np.maximum)[:, self.machine[self.delayed]]
        rows[:, way] = np.where(left >= rows[:, way], 0, rows[:, way])

    def ended(self, rows: States, device: int) -> npt.NDArray[np.bool_]:
        """Whether a device has run everything, and no microbatch begins any more."""
        of_device = list(self.graph.machines[device].families)
        left = rows[:, of_device].any(axis=1) | rows[:, [self.families + o for o in of_device]].any(axis=1)
        return np.asarray((rows[:, self.closed] == 1) & ~left, dtype=bool)

    def _start(self, rows: States, family: int, closing: int) -> None:
        rows[:, [self.families + o for o in self.machines[self.machine[family]]]] = 0
        rows[:, self.families + family] = self.graph.duration[family]
        if family == self.first:
            rows[:, self.behind] += 1
            rows[:, self.closed] = closing
        rows[:, family] -= 1

    def _active(self, rows: States, can: npt.NDArray[np.bool_], idle: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Whether every machine that idles may."""
        keep = np.ones(len(rows), dtype=bool)
        asked = idle & self.per_machine(can, np.logical_or)
        some = np.flatnonzero(asked.any(axis=1))
        if not len(some):
            return keep
        rows, can, asked = rows[some], can[some], asked[some]
        shortest = self.per_machine(np.where(can & self.binds, self.duration, NEVER), np.minimum)
        arrival = self._arrivals(rows)
        behind = rows[:, self.behind]
        soon = (arrival > 0) & (arrival < shortest[:, self.machine]) & self.fits(rows)
        soon &= (self.own < 0) | (behind > behind[:, self.own])
        keep[some] = ~(asked & ~self.per_machine(soon, np.logical_or)).any(axis=1)
        return keep

    def _arrivals(self, rows: States) -> IntArray:
        """By row and family, the least time until the input of its next operation can be there; 0: it is."""
        behind, left, way = rows[:, self.behind], rows[:, self.left], rows[:, self.way]
        running, before = left > 0, self.before
        moving = np.where(self.delay > 0, way[:, before], 0)
        started = behind - behind[:, before]
        sent = started - running[:, before]
        arrival = np.where(sent > 0, moving, left[:, before] + self.delay)
        arrival[sent - (moving > 0) > 0] = 0
        arrival[:, self.first] = np.where(rows[:, self.closed] == 0, 0, NEVER)
        fresh = started <= 0
        fresh[:, self.first] = False
        columns = np.ascontiguousarray(arrival.T, dtype=np.int64)
        busy = np.ascontiguousarray(np.maximum(self.per_machine(left, np.maximum), 0).T, dtype=np.int64)
        for family in np.flatnonzero(fresh.any(axis=0)).tolist():
            of = before[family]
            later = np.maximum(columns[of], busy[self.machine[of]]) + (self.duration[of] + self.delay[family])
            np.copyto(columns[family], later, where=fresh[:, family])
        return columns.T


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
    events = _Events(graph)
    last = np.zeros((1, events.width), dtype=np.int16)
    last[0, events.closed] = 1
    known = _Numbered(events.width, min(most, MEMORY // last.nbytes))
    known.add(np.zeros_like(last))
    known.add(last)
    blocks: list[tuple[npt.NDArray[Any], ...]] = []
    done = 0
    while done < known.size:
        until = min(known.size, done + min(_BLOCK, 1 + most // _BLOCKS))
        new, source, begun, elapsed = events.after(known.rows[done:until])
        if span:
            new[events.ended(new, graph.owner[0])] = last
        target = known.add(new)
        clock.charge((until - done) * tuning.state_seconds)
        hopeless = until > max(_BLOCK, most // tuning.hopeless_after) and 2 * (known.size - until) > until
        if target is None or hopeless or clock.over:
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
    return StateGraph(
        int((closed == 0).sum()),
        sources[edges],
        number[targets[edges]],
        begins[edges],
        times[edges],
        rows[order, : events.families],
        depth[order],
    )
