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

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ppopt.bounds.state_events import Done, Edges, Facts, Numbers, Places, Rules, State
from ppopt.bounds.state_loop import FAR, FULL, MANY, NEVER, explore, number_all
from ppopt.bounds.tuning import BoundsTuning
from ppopt.clock import Clock
from ppopt.compiled import expect
from ppopt.constraints import FamilyGraph
from ppopt.pipeline import IntArray

MEMORY = 2**30
"""Bytes that the states of a graph may take, and the least times from them too."""
_NUMBER = np.dtype("<i2")
_FIRST = 500
"""States that are looked at first, and for which there is room then; after that as many as were, up to ``_BLOCK``."""
_BLOCK = 2**16
"""Most states that are looked at before the clock is."""
_BLOCKS = 32
"""And at most this part of the largest number of states, so that too many are noticed soon. Measured before the
loop was compiled: a graph of more than 30,000 states is given up after 0.5 s instead of 1.3 s."""
_MANY = 2**16
"""States at least before a graph is given up because many wait: to find so many takes less than a tenth of a second."""
_MOST_WAIT, _FEW_WAIT, _FEWER = 0.5, 0.1, 0.95
"""Waiting states for each one that was looked at: with more than the first number a graph is given up, with fewer than the second
it goes on. Between these it goes on as long as they are no more than the third number times those that waited when half as many
had been looked at. Measured on 100 graphs: of those with an end below 4 million states no more wait, from a quarter of a million
on; of most others they do."""
_EXPECTED = 8
"""How many more states there will be for each one, as long as some wait. Measured: 2000 of 95 numbers take 0.2 s in Python, and
to load numba takes 0.4 s."""
_SECONDS = 1.5e-6
"""Deterministic seconds for a state. Measured: 1.4e-6 with 27 families, all steps counted."""
_EDGES = 4
"""Most edges from one state, for every state that there may be."""


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
    rows: Numbers
    """The states as they were found, a row of numbers each: for every family how many operations it is behind the first."""
    row: IntArray
    """For every state, its row."""
    depth: npt.NDArray[np.int32]
    """For every state, how many ends and arrivals there will be of what has begun; these rise among each kind of states."""

    @property
    def states(self) -> int:
        """The number of all states."""
        return len(self.row)

    def behind(self, states: IntArray) -> Numbers:
        """For each of these states and every family, how many operations it is behind the first one."""
        return self.rows[self.row[states]]


class _States:
    """All that is known of the states while they are found."""

    def __init__(self, rules: Rules, most: int) -> None:
        self.rules, self.most = rules, max(2, min(most, MEMORY // (_NUMBER.itemsize * rules.width)))
        self.facts, self.now, self.then = Facts.empty(rules), State.empty(rules), State.empty(rules)
        self.table = np.zeros(2 * rules.width, dtype=_NUMBER)
        self.table[2 * rules.width - 1] = 1
        self.size, self.done = 2, 0
        """The empty state comes first, then that in which everything is done."""
        self.blocks: list[tuple[IntArray, Places, Edges]] = []
        """By state that was looked at the number of its edges, its depth, and the edges."""
        self._grow(min(self.most, 4 * _FIRST))

    def _grow(self, states: int) -> None:
        """Make room for so many."""
        table = np.empty(states * self.rules.width, dtype=_NUMBER)
        known = self.size * self.rules.width
        table[:known] = self.table[:known]
        bits = (2 * states).bit_length()
        self.table, self.rules = table, self.rules.with_slots(bits)
        self.slots = np.full(2 << bits, -1, dtype=np.int32)
        number_all(self.size, self.rules.largest, self.size, self.rules, self.table, self.slots)

    def look(self, until: int, edges: int) -> int | None:
        """At the states up to ``until``, those that are found meanwhile too, with room for so many edges, as far as there is
        room; for how many there should be next time. ``None``: there are too many states, or edges, or they are too far apart."""
        room, done = Edges.room(edges), Done.room(until - self.done)
        arguments = (self.rules, self.facts, self.now, self.then, self.table, self.slots, room, done)
        numbers = (until - self.done) * self.rules.width
        why = explore(numbers, self.rules.largest, self.done, self.size, until, *arguments)
        after, self.size, count = done.totals.tolist()
        looked = after - self.done
        self.blocks.append((done.edges[:looked], done.depth[:looked], room.first(count)))
        self.done = after
        capacity = len(self.table) // self.rules.width
        if why == FAR or (why == FULL and capacity == self.most):
            return None
        if why == FULL:
            self._grow(16 * capacity if 32 * capacity < self.most else self.most)  # to copy most of them needs twice the room
        elif why == MANY and not looked:
            return 2 * edges if edges < _EDGES * self.most else None
        return edges

    def graph(self) -> StateGraph:
        """That of all states, with its own numbers. The table, which takes the most room, is given up for it."""
        rows = self.table[: self.size * self.rules.width].reshape(self.size, self.rules.width)
        behind, closed = rows[:, : self.rules.families].copy(), rows[:, -1].copy()
        self.table, self.slots = self.table[:0].copy(), self.slots[:0].copy()
        del rows
        count, depth, edges = zip(*self.blocks, strict=True)
        target, begun, elapsed = (np.concatenate(column) for column in zip(*edges, strict=True))
        return _numbered_anew(behind, closed, np.concatenate(count), target, begun, elapsed, np.concatenate(depth))


def state_graph_of(graph: FamilyGraph, *, span: bool = False, most: int, clock: Clock, tuning: BoundsTuning) -> StateGraph | None:
    """The state graph; ``None`` where it has more than ``most`` states, takes too long or too much memory, or is not defined.

    Nor is there one where families come to be some 30,000 operations apart.

    It is also given up where, after a part of them, many states wait to be looked at for each one that was, and these do not
    become fewer: then there is no end in sight.

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
    states, edges, waited, after = _States(Rules.of(graph, span), most), 4 * _FIRST, math.inf, most // (2 * tuning.hopeless_after)
    while states.done < states.size:
        before = states.done
        expect(_EXPECTED * before * states.rules.width, explore)
        block = min(max(_FIRST, before), _BLOCK, 1 + most // _BLOCKS)
        more = states.look(before + block, max(edges, 4 * block))
        clock.charge((states.done - before) * _SECONDS)
        if more is None or clock.over:
            return None
        edges = more
        if states.done >= max(after, _MANY):
            waiting = states.size / states.done - 1
            if waited < math.inf and (waiting > _MOST_WAIT or (waiting > _FEW_WAIT and waiting > _FEWER * waited)):
                return None
            waited, after = waiting, 2 * states.done
    return states.graph()


def _numbered_anew(
    rows: Numbers,
    closed: Numbers,
    count: IntArray,
    target: Places,
    begun: Numbers,
    time: Numbers,
    depth: Places,
) -> StateGraph:
    """The graph of states, a row each, and of the edges from each, ``count`` of them, with its own numbers."""
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
        begun[edges] > 0,
        time[edges],
        rows,
        order,
        depth[order],
    )
