"""The epilogue of a periodic schedule made shorter while the rest stays as it is; its prologue is that of the reversed schedule.

List scheduling in many variations of one order takes milliseconds each for any number of devices; CP-SAT goes on from there.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import replace
from functools import cached_property

import numpy as np
from ortools.sat.python import cp_model

from ppopt.clock import Clock, Limits
from ppopt.constraints import FamilyGraph
from ppopt.cpsat import engine
from ppopt.cpsat.posting import Hold, Row, Start, in_order, machine_of, reservoir, waits
from ppopt.cpsat.running import Known
from ppopt.op import Kind
from ppopt.periodic.periodic_schedule import PeriodicSchedule, block_precedences
from ppopt.pipeline import IntArray


def reversed_periodic(periodic: PeriodicSchedule, graph: FamilyGraph) -> PeriodicSchedule:
    """The schedule with time running backwards; ``graph`` is the reversed one."""
    until = periodic.makespan
    rows = tuple(until - row[::-1] - time for row, time in zip(periodic.start, periodic.graph.duration, strict=True))
    prologue = tuple(len(row) - n - periodic.unroll for row, n in zip(periodic.start, periodic.prologue, strict=True))
    return PeriodicSchedule(graph, rows[::-1], prologue[::-1], periodic.period, periodic.unroll)


class Epilogue:
    """What is behind the kernel: its operations, and when their inputs and their machines are there at the earliest.

    Operations are places in the concatenation of all families, so those before the epilogue have numbers too.
    """

    def __init__(self, periodic: PeriodicSchedule) -> None:
        self.periodic = periodic
        self.graph = graph = periodic.graph
        self.begin = [prologue + periodic.unroll for prologue in periodic.prologue]
        """Per family, its first operation of the epilogue."""
        self.count = [len(row) for row in periodic.start]
        self.size = sum(count - begin for count, begin in zip(self.count, self.begin, strict=True))
        self.offset = np.concatenate(([0], np.cumsum(self.count))).tolist()
        self.within = np.concatenate([np.arange(c) >= b for c, b in zip(self.count, self.begin, strict=True)])
        """Per operation, whether it is of the epilogue."""
        self.machine_free = [
            max((int(periodic.start[o][self.begin[o] - 1]) + graph.duration[o] for o in families), default=0)
            for _, families in graph.machines
        ]
        """Per machine, when the kernel leaves it."""
        flat = np.concatenate(periodic.start)
        wait = block_precedences(graph, self.count, periodic.prologue, periodic.unroll)
        into = self.within[wait.after]
        from_before = into & ~self.within[wait.before]
        self.ready = np.zeros(len(flat), dtype=np.int64)
        """Per operation, when what it waits for of prologue and kernel is there."""
        least = flat[wait.before] + wait.lag - wait.distance * periodic.period
        np.maximum.at(self.ready, wait.after[from_before], least[from_before])
        inner = into & self.within[wait.before]
        self.precedences = [column[inner].tolist() for column in (wait.before, wait.after, wait.lag)]
        """Within the epilogue: before, after, lag."""

    @cached_property
    def family_of(self) -> list[int]:
        """Per operation its family."""
        return [o for o, count in enumerate(self.count) for _ in range(count)]

    @cached_property
    def followers(self) -> list[list[tuple[int, int]]]:
        """Per operation, what waits for it and how long after its start."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.offset[-1])]
        for before, after, lag in zip(*self.precedences, strict=True):
            found[before].append((after, lag))
        return found

    @cached_property
    def predecessors(self) -> list[int]:
        """Per operation, how many of the epilogue it waits for."""
        found = [0] * self.offset[-1]
        for after in self.precedences[1]:
            found[after] += 1
        return found

    @cached_property
    def held(self) -> list[int]:
        """Per reservoir, what it holds where the epilogue begins."""
        return [sum(h.amount * (self.begin[h.first] - self.begin[h.last]) for h in room.held) for room in self.graph.reservoirs]

    @cached_property
    def claims(self) -> list[list[tuple[int, int]]]:
        """Per family the reservoirs from which its operations take, and how much."""
        return self._flows(0)

    @cached_property
    def releases(self) -> list[list[tuple[int, int]]]:
        """Per family the reservoirs to which its operations give back, and how much."""
        return self._flows(1)

    def _flows(self, side: int) -> list[list[tuple[int, int]]]:
        found: list[dict[int, int]] = [{} for _ in self.graph.families]
        for place, room in enumerate(self.graph.reservoirs):
            for held in room.held:
                family = held[side]
                found[family][place] = found[family].get(place, 0) + held.amount
        return [list(of.items()) for of in found]

    @cached_property
    def postponable(self) -> list[bool]:
        """Per family, whether nothing waits for it: weight gradients."""
        return [family.kind == Kind.W for family in self.graph.families]

    @cached_property
    def affected_owners(self) -> list[set[int]]:
        """Per machine, the owners of its families: those that one of them keeps from going on."""
        return [{self.graph.owner[o] for o in families} for _, families in self.graph.machines]

    def replaced(self, flat: IntArray) -> PeriodicSchedule:
        """The periodic schedule with other starts of the epilogue's operations."""
        return replace(self.periodic, start=tuple(np.split(flat, self.offset[1:-1])))


LOOKED_AT = 1000
"""Operations between two looks at the clock. Measured: a list schedule takes 10 to 40 us for each."""


def list_scheduled(epilogue: Epilogue, priority: list[float], patient: float, clock: Clock) -> IntArray | None:
    """Starts of all operations, those of the epilogue by list scheduling; ``None``: memory blocks it, or the clock is over.

    The smallest ``priority`` comes first. ``patient``: a weight gradient waits where something else arrives in less time than its
    duration times that.
    """
    return _ListScheduling(epilogue, priority, patient).starts(clock)


class _ListScheduling:
    """The epilogue while it is list-scheduled, event by event; devices and links are owners of their operations."""

    def __init__(self, epilogue: Epilogue, priority: list[float], patient: float) -> None:
        self.epilogue, self.graph, self.priority, self.patient = epilogue, epilogue.graph, priority, patient
        self.start = np.concatenate(epilogue.periodic.start).tolist()
        self.ready, self.predecessors, self.upcoming = epilogue.ready.tolist(), list(epilogue.predecessors), list(epilogue.begin)
        self.held, self.free = list(epilogue.held), list(epilogue.machine_free)
        """Per reservoir what it holds, per machine when it is free."""
        self.limit = [room.limit for room in epilogue.graph.reservoirs]
        self.heap: list[tuple[int, int]] = []
        self.due: list[int | None] = [None] * epilogue.graph.owners
        """Per owner when it can go on next; an older note in the heap is void."""

    def starts(self, clock: Clock) -> IntArray | None:
        """Run it all."""
        left, due, heap = self.epilogue.size, self.due, self.heap
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
            if left % LOOKED_AT == 0 and clock.over:
                return None
            for touched in self.run(family, now):
                self.look(touched)
        return None if left else np.array(self.start, dtype=np.int64)

    def candidates(self, owner: int) -> list[tuple[int, float, int]]:
        """What an owner could run next: when, its priority, and its family."""
        epilogue, machines_of, found = self.epilogue, self.graph.machines_of, []
        for o in self.graph.machines[owner].families:
            n = self.upcoming[o]
            if n < epilogue.count[o]:
                op = epilogue.offset[o] + n
                fits = all(self.held[place] + amount <= self.limit[place] for place, amount in epilogue.claims[o])
                if fits and not self.predecessors[op]:
                    time = self.ready[op]
                    for machine in machines_of[o]:
                        time = max(time, self.free[machine])
                    found.append((time, self.priority[op], o))
        return found

    def look(self, owner: int) -> None:
        """Note when an owner can go on next."""
        found = self.candidates(owner)
        self.due[owner] = min(found)[0] if found else None
        if found:
            heapq.heappush(self.heap, (min(found)[0], owner))

    def worth_waiting(self, found: list[tuple[int, float, int]], family: int, now: int) -> int | None:
        """When something else arrives for which a weight gradient should wait, if there is such a thing."""
        postponable = self.epilogue.postponable
        if not postponable[family] or not self.patient:
            return None
        other = min((time for time, _, o in found if not postponable[o]), default=now)
        return other if now < other < now + self.patient * self.graph.duration[family] else None

    def run(self, family: int, now: int) -> set[int]:
        """Start the next operation of a family; the owners to which this may matter."""
        epilogue, graph = self.epilogue, self.graph
        op, time = epilogue.offset[family] + self.upcoming[family], graph.duration[family]
        self.upcoming[family] += 1
        self.start[op] = now
        for place, amount in epilogue.claims[family]:
            self.held[place] += amount
        for place, amount in epilogue.releases[family]:
            self.held[place] -= amount
        touched = set[int]()
        for machine in graph.machines_of[family]:
            self.free[machine] = now + time
            touched |= epilogue.affected_owners[machine]
        for after, lag in epilogue.followers[op]:
            self.predecessors[after] -= 1
            self.ready[after] = max(self.ready[after], now + lag)
            touched.add(graph.owner[epilogue.family_of[after]])
        return touched


def shortened_by_list_scheduling(
    periodic: PeriodicSchedule, clock: Clock, *, trials: int, chance: random.Random
) -> PeriodicSchedule:
    """A shorter epilogue by list scheduling in many variations of the times that it has, until the clock is over; it as it is
    where none is shorter."""
    epilogue = Epilogue(periodic)
    if not epilogue.size:
        return periodic
    own = np.flatnonzero(epilogue.within).tolist()
    priority = np.concatenate(periodic.start).astype(float).tolist()
    longest = float(max(periodic.graph.duration))
    best = periodic
    family = epilogue.family_of
    postponable = [periodic.graph.families[o].kind == Kind.W for o in family]
    variants = [priority, [k + 1e9 * w for k, w in zip(priority, postponable, strict=True)]]
    current: tuple[list[float], float] = (priority, 0.0)
    value: int | None = None
    for trial in range(trials):
        if clock.over:
            break
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
        start = list_scheduled(epilogue, changed, patient, clock)
        if start is None:
            continue
        found = epilogue.replaced(start)
        if value is None or found.makespan <= value:
            current, value = (changed, patient), found.makespan
            if found.makespan < best.makespan:
                best = found
    return best


def shortened_by_cpsat(
    periodic: PeriodicSchedule, limits: Limits, *, reach: int, seconds: float
) -> tuple[PeriodicSchedule, bool]:
    """The best epilogue with every start within ``reach`` ticks of where it is, by CP-SAT, and whether that is certain.

    ``seconds``: most for the search.

    Raises:
        KeyboardInterrupt: a signal came before the search.
    """
    epilogue = Epilogue(periodic)
    graph, horizon = periodic.graph, periodic.makespan
    model = cp_model.CpModel()
    known = np.concatenate(periodic.start).tolist()
    start: list[Start] = list(known)
    makespan = model.new_int_var(0, horizon, "makespan")
    rows: list[Row] = []
    for o, time in enumerate(graph.duration):
        begin, until = epilogue.offset[o] + epilogue.begin[o], epilogue.offset[o + 1]
        for op in range(begin, until):
            earliest, latest = max(int(epilogue.ready[op]), known[op] - reach), min(horizon - time, known[op] + reach)
            start[op] = variable = model.new_int_var(earliest, latest, f"{graph.families[o]}({op - epilogue.offset[o]})")
            model.add_hint(variable, known[op])
        rows.append(Row(start[epilogue.offset[o] : until], time))
        in_order(model, Row(start[begin - 1 : until], time))
        model.add(makespan >= start[until - 1] + time)
    for before, after, lag in zip(*epilogue.precedences, strict=True):
        waits(model, start[before], start[after], lag)
    for machine, (_, families) in enumerate(graph.machines):
        mine = [Row(rows[o].start[epilogue.begin[o] :], graph.duration[o]) for o in families]
        machine_of(model, mine)
        for x in (x for row in mine for x in row.start):
            model.add(x >= epilogue.machine_free[machine])
    for room in graph.reservoirs:
        held = (
            Hold(rows[first].start[n], rows[last].start[n] + graph.duration[last], amount, horizon)
            for first, last, amount in room.held
            for n in range(epilogue.begin[last], epilogue.count[last])
        )
        reservoir(model, held, room.limit)
    model.minimize(makespan)
    answer = engine.search(model, limits, engine.SMALL, seconds=seconds)
    if not answer.found:
        return periodic, False
    flat = np.array([x if isinstance(x, int) else answer.value(x) for x in start], dtype=np.int64)
    return epilogue.replaced(flat), answer.known is Known.BEST
