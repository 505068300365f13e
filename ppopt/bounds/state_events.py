"""What follows from the states of a graph of families: which operations may start, and the state at the next event.

Many states are looked at together, as columns of a table with a row for every number of a state; so every step is one pass over
rows that lie together in memory. A row of a table that is said *by machine* is put together of those of its families.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ppopt.constraints import FamilyGraph
from ppopt.constraints.families import Held
from ppopt.op import Kind
from ppopt.pipeline import IntArray

Numbers = npt.NDArray[np.int16]
Flags = npt.NDArray[np.bool_]
NEVER = 2**14
"""A time that does not come; all that come are below a quarter of it."""
NOTHING = -1
"""No family."""
MISSED = -1
"""What is left of an operation that could have started and has not."""


class States(NamedTuple):
    """States, one a column."""

    behind: Numbers
    """By family, how many operations fewer than of the first have started."""
    left: Numbers
    """By family, what is left of one that runs; ``MISSED``: its device idles and could have started one before; else 0."""
    way: Numbers
    """By family of ``Events.sent``, the time until its last result arrives."""
    closed: Numbers
    """Whether no microbatch begins any more: one row."""

    @classmethod
    def of(cls, table: Numbers, families: int) -> States:
        """Parts of one table of numbers."""
        return cls(table[:families], table[families : 2 * families], table[2 * families : -1], table[-1:])


class After(NamedTuple):
    """Next states; for each, the state that it comes from, whether a microbatch begins, and the time."""

    table: Numbers
    source: IntArray
    begun: Flags
    elapsed: Numbers

    def taken(self, places: IntArray) -> After:
        """Some of them."""
        return After(self.table.take(places, axis=1), self.source[places], self.begun[places], self.elapsed[places])


class _Idling(NamedTuple):
    """When the machines of some states may idle."""

    can: Flags
    """By family, whether an operation could start if its device did not run another."""
    shortest: Numbers
    """By machine, the shortest of those that bind it."""
    worth: Flags
    """By family, whether its device may wait for the input of its next operation, as far as memory and the order go."""

    def taken(self, places: IntArray) -> _Idling:
        """Of some of the states."""
        return _Idling(self.can.take(places, axis=1), self.shortest.take(places, axis=1), self.worth.take(places, axis=1))


class _Step(NamedTuple):
    """What a machine chooses."""

    place: int
    """Of the machine."""
    options: list[tuple[int, int]]
    """What it may start, ``NOTHING`` first, and whether no microbatch begins afterwards."""
    picked: IntArray
    """By way, the number of its option."""
    selected: IntArray
    """By way, the way without this machine's choice that it comes from."""


class Events:
    """The events of a graph of families, each of which waits for one other; one of them, the first, for none."""

    def __init__(self, graph: FamilyGraph) -> None:
        self.graph = graph
        self.families = len(graph.families)
        self.before = np.array([into[0].before if into else -1 for into in graph.into])
        """By family, what it waits for; -1: nothing, it begins a microbatch."""
        self.first = int(np.flatnonzero(self.before < 0)[0])
        self.delay = np.array([into[0].lag if into else 0 for into in graph.into], dtype=np.int16)
        """By family, the lag of what it waits for."""
        self.duration = np.array(graph.duration, dtype=np.int16)
        self._machines()
        self._transfers()
        self._memories()
        self.own = np.array([self._ancestor(family) for family in range(self.families)])
        """By family, the last of those before it that are of its device; -1: none."""
        self.size = 2 * self.families + len(self.sent) + 1
        """Numbers of a state."""
        self.timers = slice(self.families, self.size - 1)
        """Those of them that are times."""

    def _machines(self) -> None:
        graph = self.graph
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
        forward = np.array([family.kind == Kind.F for family in graph.families])
        binds = ~(forward & (np.bincount(self.machine[forward], minlength=len(self.machines)) > 1)[self.machine])
        self.binding = np.where(binds, self.duration, NEVER).astype(np.int16)
        """By family, before what time something has to arrive for a device to idle that could run it; ``NEVER``: at any."""

    def _transfers(self) -> None:
        self.delayed = np.flatnonzero(self.delay)
        """Families whose input is on its way for a while."""
        self.sent, self.carried = np.unique(self.before[self.delayed], return_inverse=True)
        """Families whose results are; and by delayed family the place of its input among these."""
        self.lag = np.zeros(len(self.sent), dtype=np.int16)
        """By sent family, how long."""
        np.maximum.at(self.lag, self.carried, self.delay[self.delayed])

    def _memories(self) -> None:
        graph = self.graph
        held: dict[int, list[Held]] = {}
        for hold in graph.held:
            held.setdefault(int(self.machine[hold.first]), []).append(hold)
        unit = math.gcd(*(hold.amount for hold in graph.held)) or 1
        self.holds = []
        """What takes memory, what gives it back and how much of it, by machine that holds something; until all is said."""
        for slot in zip_longest(*held.values(), fillvalue=Held(0, 0, 0)):
            taken, given, amount = (np.array(side) for side in zip(*slot, strict=True))
            self.holds.append((taken, given, amount[:, None] // unit))
        claimed = np.zeros(self.families, dtype=np.int64)
        for hold in graph.held:
            claimed[hold.first] += hold.amount
        self.claiming = np.flatnonzero(claimed)
        """Families that take memory."""
        self.holder = np.array([list(held).index(place) for place in self.machine[self.claiming]], dtype=np.int64)
        """And the places of their machines among those that hold something."""
        limit = [graph.reservoirs[graph.owner[family]].limit for family in self.claiming.tolist()]
        self.room = (np.array(limit, dtype=np.int64) - claimed[self.claiming]) // unit
        """And what their devices may hold beside."""

    def _ancestor(self, family: int) -> int:
        before = int(self.before[family])
        while before >= 0 and self.machine[before] != self.machine[family]:
            before = int(self.before[before])
        return before

    def by_machine(self, rows: npt.NDArray[Any], ufunc: np.ufunc) -> npt.NDArray[Any]:
        """What is given by family put together by machine, with a maximum or the like."""
        found = rows[self.slots[0]]
        for slot in self.slots[1:]:
            ufunc(found, rows[slot], out=found)
        return np.asarray(found)

    def depth(self, states: States) -> npt.NDArray[np.int32]:
        """How many ends and arrivals there will be of what has begun: fewer after every event."""
        waiting = states.behind + (states.left > 0)
        arrivals = waiting[self.sent] + (states.way > 0)
        return np.asarray(waiting.sum(axis=0, dtype=np.int32) + arrivals.sum(axis=0, dtype=np.int32))

    def ended(self, table: Numbers, device: int) -> Flags:
        """Whether a device has run everything, and no microbatch begins any more."""
        states, of_device = States.of(table, self.families), list(self.graph.machines[device].families)
        left = states.behind[of_device].any(axis=0) | states.left[of_device].any(axis=0)
        return np.asarray((states.closed[0] == 1) & ~left)

    def after(self, table: Numbers) -> After:
        """All next states of those of a table.

        What is forbidden is left out before the choices of all machines are put together, for operations that start let nothing
        arrive earlier. What they delay is looked at afterwards.
        """
        states = States.of(table, self.families)
        fits = self._fits(states)
        can = self._arrived(states) & fits
        start = can & (states.left == 0) & self._free(states)
        alone = start & self.alone[:, None]
        if alone.any():
            states = States.of(table := table.copy(), self.families)
            states.left[...] += alone * self.duration[:, None]
            states.behind[...] -= alone
            start &= ~alone
        idling = _Idling(
            can,
            self.by_machine(_chosen(can, self.binding[:, None], NEVER), np.minimum),
            fits & ((states.behind > states.behind[self.own]) | (self.own < 0)[:, None]),
        )
        source, steps = self._choices(start, self._forbidden(states, idling))
        states = States.of(table := table.take(source, axis=1), self.families)
        begun = self._begin(states, steps)
        idling = idling.taken(source)
        forbidden = self._forbidden(states, idling).any(axis=0)
        missed = idling.can & self._free(states)
        states.left[...] = _chosen(missed, MISSED, states.left)
        self._settle(states)
        elapsed = _chosen(table[self.timers] > 0, table[self.timers], NEVER).min(axis=0)
        live = ~forbidden & (elapsed < NEVER)
        found = After(table, source, begun, elapsed)
        if not live.all():
            found = found.taken(np.flatnonzero(live))
        self._pass(States.of(found.table, self.families), found.elapsed)
        return found

    def _free(self, states: States) -> Flags:
        """By family, whether its machine runs nothing."""
        return np.asarray((self.by_machine(states.left, np.maximum) <= 0)[self.machine])

    def _arrived(self, states: States) -> Flags:
        """By family, whether the input of its next operation is there."""
        behind, running = states.behind, states.left > 0
        arrived = behind - behind[self.before] - running[self.before]
        arrived[self.delayed] -= states.way[self.carried] > 0
        arrived[self.first] = states.closed == 0
        return np.asarray(arrived > 0)

    def _fits(self, states: States) -> Flags:
        """By family, whether there is memory for its next operation."""
        found = np.ones(states.left.shape, dtype=bool)
        if self.holds:
            running = states.left > 0
            held = np.zeros(1, dtype=np.int64)
            for taken, given, amount in self.holds:
                held = held + (states.behind[given] - states.behind[taken] + running[given]) * amount
            found[self.claiming] = held[self.holder] <= self.room[:, None]
        return found

    def _choices(self, start: Flags, forbidden: Flags) -> tuple[IntArray, list[_Step]]:
        """What each machine does where it can choose, by all ways; the state that a way comes from."""
        startable = self.by_machine(start, np.logical_or)
        source = np.flatnonzero(~(forbidden & ~startable).any(axis=0))
        steps = []
        for place in np.flatnonzero(startable.any(axis=1)).tolist():
            parts = [np.flatnonzero(~forbidden[place][source])]
            options = [(NOTHING, 0)]
            for family in self.machines[place]:
                chosen = np.flatnonzero(start[family][source])
                for closing in (0, 1) if family == self.first else (0,):
                    parts.append(chosen)
                    options.append((family, closing))
            selected = np.concatenate(parts)
            steps.append(_Step(place, options, np.repeat(np.arange(len(parts)), [len(part) for part in parts]), selected))
            source = source[selected]
        return source, steps

    def _begin(self, states: States, steps: list[_Step]) -> Flags:
        """Start what the machines have chosen; whether a microbatch begins."""
        place = np.arange(states.left.shape[1])
        begun = np.zeros(len(place), dtype=bool)
        for step in reversed(steps):
            picked = step.picked[place]
            place = step.selected[place]
            idle = picked == 0
            for family in self.machines[step.place]:
                states.left[family] *= idle
            for number, (family, closing) in enumerate(step.options[1:], 1):
                taken = picked == number
                states.left[family] += taken * self.duration[family]
                states.behind[family] -= taken
                if family == self.first:
                    begun |= taken
                    states.closed[...] |= taken * np.int16(closing)
        states.behind[...] += begun
        return begun

    def _forbidden(self, states: States, idling: _Idling) -> Flags:
        """By machine, whether it idles and may not: nothing that is worth it arrives soon enough."""
        idle = self.by_machine(states.left, np.maximum) <= 0
        asked = idle & self.by_machine(idling.can, np.logical_or)
        if not asked.any():
            return np.asarray(asked)
        arrival = self._arrivals(states)
        soon = (arrival > 0) & (arrival < idling.shortest[self.machine]) & idling.worth
        return np.asarray(asked & ~self.by_machine(soon, np.logical_or))

    def _arrivals(self, states: States) -> Numbers:
        """By family, the least time until the input of its next operation can be there; 0: it is."""
        behind, left, before = states.behind, states.left, self.before
        moving = np.zeros_like(left)
        moving[self.delayed] = states.way[self.carried]
        started = behind - behind[before]
        sent = started - (left > 0)[before]
        arrival = _chosen(sent > 0, moving, left[before] + self.delay[:, None])
        arrival *= sent <= (moving > 0)
        arrival[self.first] = states.closed[0] * NEVER
        fresh = started <= 0
        fresh[self.first] = False
        busy = np.maximum(self.by_machine(left, np.maximum), 0)
        for family in np.flatnonzero(fresh.any(axis=1)).tolist():
            of = before[family]
            later = np.maximum(arrival[of], busy[self.machine[of]]) + (self.duration[of] + self.delay[family])
            arrival[family] = _chosen(fresh[family], np.minimum(later, NEVER), arrival[family])
        return np.asarray(arrival)

    def _pass(self, states: States, elapsed: Numbers) -> None:
        """Time passes: to the next event."""
        running = states.left > 0
        states.left[...] -= running * elapsed
        states.way[...] = np.maximum(states.way - elapsed, 0)
        ended = (running & (states.left == 0))[self.sent]
        states.way[...] = _chosen(ended, self.lag[:, None], states.way)
        self._settle(states)

    def _settle(self, states: States) -> None:
        """Let results count as there that arrive while their device computes."""
        if len(self.delayed):
            computes = self.by_machine(states.left, np.maximum)[self.machine[self.delayed]]
            way = states.way[self.carried]
            states.way[self.carried] = way * (computes < way)


def _chosen(which: Flags, numbers: Numbers | int, others: Numbers | int) -> Numbers:
    """As ``np.where``, in a fifth of its time: products and sums of rows are taken many numbers at a time."""
    return np.asarray(which * np.asarray(numbers, dtype=np.int16) + ~which * np.asarray(others, dtype=np.int16))
