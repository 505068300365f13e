"""The end of a periodic schedule made shorter while the rest stays as it is; its beginning is the end of the reversed schedule.

List scheduling in many variations of one order takes milliseconds each for any number of devices; CP-SAT goes on from there.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import replace
from functools import cached_property

import numpy as np
from ortools.sat.python import cp_model

from ppopt.clock import Limits
from ppopt.constraints import FamilyGraph
from ppopt.cpsat import engine
from ppopt.cpsat.engine import Known
from ppopt.cpsat.posting import Hold, Row, Start, in_order, machine_of, reservoir, waits
from ppopt.op import Kind
from ppopt.periodic.periodic import Periodic, relations
from ppopt.pipeline import IntArray

SECONDS = 1.2e-5
"""About what it takes to schedule an operation once."""
LARGEST = 1500
"""Operations of an end up to which a model of it is searched."""


def reversed_periodic(periodic: Periodic, graph: FamilyGraph) -> Periodic:
    """The same with time running backwards; ``graph`` is the reversed one."""
    until = periodic.makespan
    rows = tuple(until - row[::-1] - time for row, time in zip(periodic.start, periodic.graph.duration, strict=True))
    first = tuple(len(row) - n - periodic.step for row, n in zip(periodic.start, periodic.first, strict=True))
    return Periodic(graph, rows[::-1], first[::-1], periodic.period, periodic.step)


class End:
    """What is behind the period: its operations, and when their inputs and their machines are there at the earliest."""

    def __init__(self, periodic: Periodic) -> None:
        self.periodic = periodic
        self.graph = graph = periodic.graph
        self.begin = [first + periodic.step for first in periodic.first]
        self.count = [len(row) for row in periodic.start]
        self.size = sum(count - begin for count, begin in zip(self.count, self.begin, strict=True))
        self.offset = np.concatenate(([0], np.cumsum(self.count))).tolist()
        self.own = np.concatenate([np.arange(c) >= b for c, b in zip(self.count, self.begin, strict=True)])
        self.edge = [
            max((int(periodic.start[o][self.begin[o] - 1]) + graph.duration[o] for o in families), default=0)
            for _, families in graph.machines
        ]
        flat = np.concatenate(periodic.start)
        relation = relations(graph, self.count, periodic.first, periodic.step)
        into = self.own[relation.after]
        outer = into & ~self.own[relation.before]
        self.ready = np.zeros(len(flat), dtype=np.int64)
        np.maximum.at(
            self.ready, relation.after[outer], (flat[relation.before] + relation.lag - relation.turns * periodic.period)[outer]
        )
        inner = into & self.own[relation.before]
        self.inner = [column[inner].tolist() for column in (relation.before, relation.after, relation.lag)]

    @cached_property
    def family_of(self) -> list[int]:
        """Per operation its family."""
        return [o for o, count in enumerate(self.count) for _ in range(count)]

    @cached_property
    def followers(self) -> list[list[tuple[int, int]]]:
        """Per operation, what waits for it and how long after its start."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.offset[-1])]
        for before, after, lag in zip(*self.inner, strict=True):
            found[before].append((after, lag))
        return found

    @cached_property
    def needs(self) -> list[int]:
        """Per operation, how many of the end it waits for."""
        found = [0] * self.offset[-1]
        for after in self.inner[1]:
            found[after] += 1
        return found

    @cached_property
    def held(self) -> list[int]:
        """Per reservoir, what it holds where the end begins."""
        return [sum(h.amount * (self.begin[h.first] - self.begin[h.last]) for h in room.held) for room in self.graph.reservoirs]

    @cached_property
    def claims(self) -> list[list[tuple[int, int]]]:
        """Per family the reservoirs from which its operations take, and how much."""
        return self._flows(0)

    @cached_property
    def gives(self) -> list[list[tuple[int, int]]]:
        """And those to which they give."""
        return self._flows(1)

    def _flows(self, side: int) -> list[list[tuple[int, int]]]:
        found: list[dict[int, int]] = [{} for _ in self.graph.families]
        for place, room in enumerate(self.graph.reservoirs):
            for held in room.held:
                family = held[side]
                found[family][place] = found[family].get(place, 0) + held.amount
        return [list(of.items()) for of in found]

    @cached_property
    def late(self) -> list[bool]:
        """Per family, whether nothing waits for it: weight gradients."""
        return [family.kind == Kind.W for family in self.graph.families]

    @cached_property
    def sharing(self) -> list[set[int]]:
        """Per machine, the owners of its families: those that one of them keeps from going on."""
        return [{self.graph.owner[o] for o in families} for _, families in self.graph.machines]

    def replaced(self, flat: IntArray) -> Periodic:
        """With other starts of the end's operations."""
        return replace(self.periodic, start=tuple(np.split(flat, self.offset[1:-1])))


def greedy(end: End, key: list[float], patient: float) -> IntArray | None:
    """Starts of all operations, those of the end as soon as can be, the smallest ``key`` first; ``None``: memory blocks it.

    ``patient``: a weight gradient waits where something else arrives in less than that many times its duration.
    """
    return _List(end, key, patient).starts()


class _List:
    """The end while it is list-scheduled, event by event; devices and links are owners of their operations."""

    def __init__(self, end: End, key: list[float], patient: float) -> None:
        self.end, self.graph, self.key, self.patient = end, end.graph, key, patient
        self.start = np.concatenate(end.periodic.start).tolist()
        self.ready, self.needs, self.upcoming = end.ready.tolist(), list(end.needs), list(end.begin)
        self.held, self.free = list(end.held), list(end.edge)
        """Per reservoir what it holds, per machine when it is free."""
        self.limit = [room.limit for room in end.graph.reservoirs]
        self.heap: list[tuple[int, int]] = []
        self.due: list[int | None] = [None] * end.graph.owners
        """Per owner when it can go on next; an older note in the heap is void."""

    def starts(self) -> IntArray | None:
        """Run it all."""
        left, due, heap = self.end.size, self.due, self.heap
        for owner in range(self.graph.owners):
            self.look(owner)
        while heap:
            now, owner = heapq.heappop(heap)
            if due[owner] != now:
                continue
            found = self.candidates(owner)
            family = min((rank, o) for time, rank, o in found if time == now)[1]
            other = self.worth_waiting(found, family, now)
            if other is not None:
                self.free[owner] = other
                self.look(owner)
                continue
            left -= 1
            for touched in self.run(family, now):
                self.look(touched)
        return None if left else np.array(self.start, dtype=np.int64)

    def candidates(self, owner: int) -> list[tuple[int, float, int]]:
        """What an owner could run next: when, its key, and its family."""
        end, machines_of, found = self.end, self.graph.machines_of, []
        for o in self.graph.machines[owner].families:
            n = self.upcoming[o]
            if n < end.count[o]:
                op = end.offset[o] + n
                if not self.needs[op] and all(self.held[place] + amount <= self.limit[place] for place, amount in end.claims[o]):
                    time = self.ready[op]
                    for machine in machines_of[o]:
                        time = max(time, self.free[machine])
                    found.append((time, self.key[op], o))
        return found

    def look(self, owner: int) -> None:
        """Note when an owner can go on next."""
        found = self.candidates(owner)
        self.due[owner] = min(found)[0] if found else None
        if found:
            heapq.heappush(self.heap, (min(found)[0], owner))

    def worth_waiting(self, found: list[tuple[int, float, int]], family: int, now: int) -> int | None:
        """When something else arrives for which a weight gradient should wait, if there is such a thing."""
        late = self.end.late
        if not late[family] or not self.patient:
            return None
        other = min((time for time, _, o in found if not late[o]), default=now)
        return other if now < other < now + self.patient * self.graph.duration[family] else None

    def run(self, family: int, now: int) -> set[int]:
        """Start the next operation of a family; the owners that this may matter to."""
        end, graph = self.end, self.graph
        op, time = end.offset[family] + self.upcoming[family], graph.duration[family]
        self.upcoming[family] += 1
        self.start[op] = now
        for place, amount in end.claims[family]:
            self.held[place] += amount
        for place, amount in end.gives[family]:
            self.held[place] -= amount
        touched = set[int]()
        for machine in graph.machines_of[family]:
            self.free[machine] = now + time
            touched |= end.sharing[machine]
        for after, lag in end.followers[op]:
            self.needs[after] -= 1
            self.ready[after] = max(self.ready[after], now + lag)
            touched.add(graph.owner[end.family_of[after]])
        return touched


def rearranged(periodic: Periodic, *, trials: int, chance: random.Random) -> Periodic:
    """A shorter end by list scheduling in many variations of the times that it has; the same where none is shorter."""
    end = End(periodic)
    if not end.size:
        return periodic
    own = np.flatnonzero(end.own).tolist()
    key = np.concatenate(periodic.start).astype(float).tolist()
    longest = float(max(periodic.graph.duration))
    best = periodic
    family = end.family_of
    late = [periodic.graph.families[o].kind == Kind.W for o in family]
    variants = [key, [k + 1e9 * w for k, w in zip(key, late, strict=True)]]
    current: tuple[list[float], float] = (key, 0.0)
    value: int | None = None
    for trial in range(trials):
        if trial < 4:
            changed, patient = list(variants[trial % 2]), (0.0, 0.5)[trial // 2]
        else:
            changed, patient = list(current[0]), chance.choice((current[1], 0.0, 0.5, 1.0))
            for _ in range(chance.choice((1, 2, 4, 8))):
                op = chance.choice(own)
                bias = chance.uniform(-4, 4) * longest
                if chance.random() < 0.5:
                    changed[op] += bias
                else:
                    for other in own:
                        if family[other] == family[op]:
                            changed[other] += bias
        start = greedy(end, changed, patient)
        if start is None:
            continue
        found = end.replaced(start)
        if value is None or found.makespan <= value:
            current, value = (changed, patient), found.makespan
            if found.makespan < best.makespan:
                best = found
    return best


def shortened(periodic: Periodic, limits: Limits, *, reach: int, seconds: float) -> tuple[Periodic, bool]:
    """The best end with every start within ``reach`` ticks of where it is, with CP-SAT, and whether that is certain.

    ``seconds``: most for the search.
    """
    end = End(periodic)
    graph, horizon = periodic.graph, periodic.makespan
    model = cp_model.CpModel()
    known = np.concatenate(periodic.start).tolist()
    start: list[Start] = list(known)
    makespan = model.new_int_var(0, horizon, "makespan")
    rows: list[Row] = []
    for o, time in enumerate(graph.duration):
        begin, until = end.offset[o] + end.begin[o], end.offset[o + 1]
        for op in range(begin, until):
            earliest, latest = max(int(end.ready[op]), known[op] - reach), min(horizon - time, known[op] + reach)
            start[op] = variable = model.new_int_var(earliest, latest, f"{graph.families[o]}({op - end.offset[o]})")
            model.add_hint(variable, known[op])
        rows.append(Row(start[end.offset[o] : until], time))
        in_order(model, Row(start[begin - 1 : until], time))
        model.add(makespan >= start[until - 1] + time)
    for before, after, lag in zip(*end.inner, strict=True):
        waits(model, start[before], start[after], lag)
    for machine, (_, families) in enumerate(graph.machines):
        mine = [Row(rows[o].start[end.begin[o] :], graph.duration[o]) for o in families]
        machine_of(model, mine)
        for x in (x for row in mine for x in row.start):
            model.add(x >= end.edge[machine])
    for room in graph.reservoirs:
        held = (
            Hold(rows[first].start[n], rows[last].start[n] + graph.duration[last], amount, horizon)
            for first, last, amount in room.held
            for n in range(end.begin[last], end.count[last])
        )
        reservoir(model, held, room.limit)
    model.minimize(makespan)
    answer = engine.search(model, limits, engine.SMALL, seconds=seconds)
    if not answer.found:
        return periodic, False
    flat = np.array([x if isinstance(x, int) else answer.value(x) for x in start], dtype=np.int64)
    return end.replaced(flat), answer.known is Known.BEST
