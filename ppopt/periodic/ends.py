"""The end of a periodic schedule made shorter while the rest stays as it is; its beginning is the end of the reversed schedule.

List scheduling in many variations of one order takes milliseconds each for any number of devices; CP-SAT goes on from there.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from ortools.sat.python import cp_model

from ppopt.constraints import FamilyGraph
from ppopt.op import Kind
from ppopt.periodic.budget import Budget
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

    def replaced(self, flat: IntArray) -> Periodic:
        """With other starts of the end's operations."""
        return replace(self.periodic, start=tuple(np.split(flat, self.offset[1:-1])))


def greedy(end: End, key: list[float], patient: float) -> IntArray | None:
    """Starts of all operations, those of the end as soon as can be, the smallest ``key`` first; ``None``: memory blocks it.

    ``patient``: a weight gradient waits where something else arrives in less than so many times its duration.
    """
    periodic, graph = end.periodic, end.graph
    start = np.concatenate(periodic.start).tolist()
    duration, offset = graph.duration, end.offset
    ready = end.ready.tolist()
    needs = [0] * len(start)
    for after in end.inner[1]:
        needs[after] += 1
    upcoming = list(end.begin)
    claims: list[list[tuple[int, int, int]]] = [[] for _ in duration]
    gives: list[list[tuple[int, int]]] = [[] for _ in duration]
    held = []
    for place, room in enumerate(graph.reservoirs):
        held.append(sum(h.amount * (end.begin[h.first] - end.begin[h.last]) for h in room.held))
        for h in room.held:
            claims[h.first].append((place, h.amount, room.limit))
            gives[h.last].append((place, h.amount))
    total = [[(place, sum(a for p, a, _ in rows if p == place), limit) for place, _, limit in rows[:1]] for rows in claims]
    late = [graph.families[o].kind == Kind.W for o in range(len(duration))]
    free, machines_of = list(end.edge), graph.machines_of
    family_of = end.family_of

    def candidates(device: int) -> list[tuple[int, float, int]]:
        found = []
        for o in graph.machines[device].families:
            n = upcoming[o]
            if n < end.count[o]:
                op = offset[o] + n
                if not needs[op] and all(held[place] + amount <= limit for place, amount, limit in total[o]):
                    time = ready[op]
                    for machine in machines_of[o]:
                        time = max(time, free[machine])
                    found.append((time, key[op], o))
        return found

    heap: list[tuple[int, int]] = []
    owners = graph.owners
    due: list[int | None] = [None] * owners
    left = end.size
    device_of = graph.owner
    sharing = [{device_of[o] for o in families} for _, families in graph.machines]

    def look(device: int) -> None:
        """Note when the device can go on next; an older note is void."""
        found = candidates(device)
        due[device] = min(found)[0] if found else None
        if found:
            heapq.heappush(heap, (min(found)[0], device))

    for device in range(owners):
        look(device)
    while heap:
        now, device = heapq.heappop(heap)
        if due[device] != now:
            continue
        found = candidates(device)
        _, o = min((rank, o) for time, rank, o in found if time == now)
        if late[o] and patient:
            other = min((time for time, _, p in found if not late[p]), default=now)
            if now < other < now + patient * duration[o]:
                free[device] = other
                look(device)
                continue
        op = offset[o] + upcoming[o]
        upcoming[o] += 1
        start[op] = now
        left -= 1
        for place, amount, _ in claims[o]:
            held[place] += amount
        for place, amount in gives[o]:
            held[place] -= amount
        touched = set[int]()
        for machine in machines_of[o]:
            free[machine] = now + duration[o]
            touched |= sharing[machine]
        for after, lag in end.followers[op]:
            needs[after] -= 1
            ready[after] = max(ready[after], now + lag)
            touched.add(device_of[family_of[after]])
        for other_device in touched:
            look(other_device)
    return None if left else np.array(start, dtype=np.int64)


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


def shortened(periodic: Periodic, budget: Budget, *, reach: int, seconds: float) -> tuple[Periodic, bool]:
    """The best end with every start within ``reach`` ticks of where it is, with CP-SAT, and whether that is certain."""
    end = End(periodic)
    graph, horizon = periodic.graph, periodic.makespan
    model = cp_model.CpModel()
    known = np.concatenate(periodic.start).tolist()
    start: list[cp_model.LinearExprT] = list(known)
    makespan = model.new_int_var(0, horizon, "makespan")
    rows: list[list[cp_model.LinearExprT]] = []
    for o, time in enumerate(graph.duration):
        begin, until = end.offset[o] + end.begin[o], end.offset[o + 1]
        for op in range(begin, until):
            earliest, latest = max(int(end.ready[op]), known[op] - reach), min(horizon - time, known[op] + reach)
            start[op] = variable = model.new_int_var(earliest, latest, f"{graph.families[o]}({op - end.offset[o]})")
            model.add_hint(variable, known[op])
        rows.append(start[end.offset[o] : until])
        for a, b in pairwise(start[begin - 1 : until]):
            model.add(b >= a + time)
        model.add(makespan >= start[until - 1] + time)
    for before, after, lag in zip(*end.inner, strict=True):
        model.add(start[after] >= start[before] + lag)
    for machine, (_, families) in enumerate(graph.machines):
        mine = [(o, x) for o in families for x in rows[o][end.begin[o] :]]
        model.add_no_overlap([model.new_fixed_size_interval_var(x, graph.duration[o], "") for o, x in mine])
        for _, x in mine:
            model.add(x >= end.edge[machine])
    for room in graph.reservoirs:
        intervals, demands = [], []
        for first, last, amount in room.held:
            for n in range(end.begin[last], end.count[last]):
                size = model.new_int_var(0, horizon, "")
                intervals.append(model.new_interval_var(rows[first][n], size, rows[last][n] + graph.duration[last], ""))
                demands.append(amount)
        if sum(demands) > room.limit:
            model.add_cumulative(intervals, demands, room.limit)
    model.minimize(makespan)
    solver, sure = budget.solve(model, seconds)
    if solver is None:
        return periodic, False
    return end.replaced(np.array([x if isinstance(x, int) else solver.value(x) for x in start], dtype=np.int64)), sure
