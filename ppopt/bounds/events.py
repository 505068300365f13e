"""The event graph: everything that a schedule under tight memory can do, whatever the number of microbatches is.

*States.* At an event (an operation ends, a result arrives) a schedule's future depends on little: for every family how many
operations it is behind the first one, what every device runs and for how much longer, which results are on their way, and
whether more microbatches will begin. Where memory bounds how far families are apart there are finitely many states, whatever the
number of microbatches is. From a state every idle device starts an operation that is available or stays idle; time goes on to the
next event. An edge carries ``r = 1`` if a microbatch begins, and the time ``dt``.

*Active schedules.* Some optimal schedule lets a device idle only if something that it could run arrives before the shortest
operation that it could start now would end: else that operation, which runs later, can be moved here. An input gradient, a
weight gradient or a transfer can always be moved (it needs no memory); a forward only past backwards, so where a device has
forwards of several stages an available forward does not forbid to idle.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ppopt.bounds.flow import Flow
from ppopt.op import Kind
from ppopt.pipeline import IntArray

States = npt.NDArray[np.int16]
NEVER = 2**14


@dataclass(frozen=True, eq=False)
class Graph:
    """The reachable states, numbered from the empty one, and the edges between them, by source."""

    states: int
    end: int
    """The state in which everything is done."""
    source: IntArray
    target: IntArray
    begun: IntArray
    """Microbatches that begin (0 or 1)."""
    time: IntArray
    rows: States
    """The states themselves; the first columns count for every family how many operations it is behind the first one."""


class _Events:
    """The states of a flow as rows of numbers, and what follows from them.

    A row has for every family how many operations fewer than of the first have started; for every family, what is left of
    one that runs; for every family, the time until its last result arrives; and whether no microbatch begins any more.
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
        self.forward = [kind == Kind.F for kind in flow.kind]
        self.behind = slice(0, self.families)
        self.left = slice(self.families, 2 * self.families)
        self.way = slice(2 * self.families, 3 * self.families)
        self.closed = 3 * self.families
        self.width = self.closed + 1

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
        claimed = sum(held.amount for held in self.flow.held if held.first == family)
        if claimed and self.flow.limit is not None:
            device = self.flow.device[family]
            total = np.zeros(len(rows), dtype=np.int64)
            for held in self.flow.held:
                if self.flow.device[held.first] == device:
                    count = rows[:, held.last] - rows[:, held.first] + (rows[:, self.families + held.last] > 0)
                    total += held.amount * count
            found = found & (total + claimed <= self.flow.limit[device])
        return np.asarray(found, dtype=bool)

    def after(self, rows: States) -> tuple[States, IntArray, IntArray, IntArray]:
        """All next states; for each, the row that it comes from, the microbatches that begin, and the time."""
        source = np.arange(len(rows), dtype=np.int64)
        begun = np.zeros(len(rows), dtype=np.int64)
        can = [self.available(rows, family) for family in range(self.families)]
        for families in self.flow.families_of:
            busy = (rows[:, [self.families + o for o in families]] > 0).any(axis=1)
            parts = [(rows, source, begun)]
            for family in families:
                chosen = ~busy & can[family][source]
                for closing in (0, 1) if self.before[family] < 0 else (0,):
                    new = rows[chosen].copy()
                    self._start(new, family, closing)
                    parts.append((new, source[chosen], begun[chosen] + (self.before[family] < 0)))
            rows, source, begun = (np.concatenate(column) for column in zip(*parts, strict=True))
        keep = self._active(rows, [c[source] for c in can])
        rows, source, begun = rows[keep], source[keep], begun[keep]
        timers = np.concatenate((rows[:, self.left], rows[:, self.way]), axis=1)
        timers[timers == 0] = NEVER
        elapsed = timers.min(axis=1)
        live = elapsed < NEVER
        rows, source, begun, elapsed = rows[live], source[live], begun[live], elapsed[live]
        running = rows[:, self.left] > 0
        for part in (self.left, self.way):
            rows[:, part] = np.maximum(rows[:, part] - elapsed[:, None], 0)
        ended = running & (rows[:, self.left] == 0)
        rows[:, self.way] = np.where(ended, np.array(self.lag, dtype=np.int16), rows[:, self.way])
        return rows, source, begun, elapsed.astype(np.int64)

    def ended(self, rows: States, device: int) -> npt.NDArray[np.bool_]:
        """Whether a device has run everything, and no microbatch begins any more."""
        of_device = list(self.flow.families_of[device])
        left = rows[:, of_device].any(axis=1) | rows[:, [self.families + o for o in of_device]].any(axis=1)
        return np.asarray((rows[:, self.closed] == 1) & ~left, dtype=bool)

    def _start(self, rows: States, family: int, closing: int) -> None:
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
            soon = np.zeros(len(rows), dtype=bool)
            for o in families:
                soon |= (arrival[o] > 0) & (arrival[o] < shortest)
            keep &= ~idle | (shortest == NEVER) | soon
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


def graph_of(flow: Flow, *, span: bool = False, most: int, seconds: float) -> Graph | None:
    """The event graph; ``None`` where it has more than ``most`` states, takes too long, or is not defined.

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
    rows = np.zeros((1, events.width), dtype=np.int16)
    known: dict[bytes, int] = {rows[0].tobytes(): 0}
    last = np.zeros((1, events.width), dtype=np.int16)
    last[0, events.closed] = 1
    columns: list[tuple[IntArray, ...]] = []
    found = [rows]
    numbers = np.zeros(1, dtype=np.int64)
    while len(rows):
        new, source, begun, elapsed = events.after(rows)
        if span:
            new[events.ended(new, flow.device[0])] = last
        fresh: list[int] = []
        target = np.empty(len(new), dtype=np.int64)
        for place, key in enumerate(_keys(new)):
            number = known.get(key)
            if number is None:
                number = known[key] = len(known)
                fresh.append(place)
            target[place] = number
        columns.append((numbers[source], target, begun, elapsed))
        rows, numbers = new[fresh], target[fresh]
        found.append(rows)
        if len(known) > most or time.monotonic() - begin > seconds:
            return None
    end = known.get(last[0].tobytes())
    assert end is not None, "one microbatch after the other is a schedule"
    source, target, begun, elapsed = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.argsort(source, kind="stable")
    return Graph(len(known), end, source[order], target[order], begun[order], elapsed[order], np.concatenate(found))


def _keys(rows: States) -> list[bytes]:
    rows = np.ascontiguousarray(rows)
    return [row.tobytes() for row in rows]
