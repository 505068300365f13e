"""Kernels by placing operations one by one: no model, so that it takes a moment for any number of devices.

Modulo scheduling as compilers do it for loops (Rau, "Iterative modulo scheduling", 1994, doi 10.1145/192724.192731), without its
backtracking. Operations come in the order of the data. Each takes the first place that is free on its device (or link) in every
iteration, as a modulo reservation table says. Weight gradients, which nothing waits for, come last and fill what is left. What
that holds in memory is then brought below the limits: single operations pass over some places, chosen at random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from ppopt.clock import Clock
from ppopt.constraints import FamilyGraph
from ppopt.op import Kind
from ppopt.periodic.kernel import Kernel, least_period
from ppopt.periodic.tuning import ModuloTuning
from ppopt.pipeline import IntArray

_SECONDS = 4e-6
"""Deterministic seconds for placing an operation; measured: 2e-6 to 5e-6."""


class _ReservationTable:
    """What is free on the devices within a period, and what a choice of places holds. All in steps of a coarse grid."""

    def __init__(self, graph: FamilyGraph, period: int, unroll: int) -> None:
        self.graph, self.period, self.unroll = graph, period, unroll
        self.into: list[list[tuple[int, int, int]]] = [[] for _ in graph.families]
        for before, after, shift, lag in graph.precedences:
            self.into[after].append((before, shift, graph.duration[before] + lag))
        last = [o for o, family in enumerate(graph.families) if family.kind == Kind.W]
        early = sorted(set(range(len(graph.families))) - set(last))
        self.sequence = [(o, k) for group in (early, last) for k in range(unroll) for o in group]

    def placed(self, passed: dict[tuple[int, int], int]) -> list[list[int]] | None:
        """Starts by family and copy, where operations pass over free places; ``None``: one finds no place."""
        period, unroll, duration = self.period, self.unroll, self.graph.duration
        whole = (1 << period) - 1
        taken = [0] * len(self.graph.machines)
        start: list[list[int]] = [[] for _ in duration]
        for o, k in self.sequence:
            time = start[o][-1] + duration[o] if k else 0
            for before, shift, wait in self.into[o]:
                iteration, copy = divmod(k - shift, unroll)
                if copy < len(start[before]):
                    time = max(time, start[before][copy] + iteration * period + wait)
            latest = start[o][0] + period - duration[o] if k else time + 2 * period
            machines, left = self.graph.machines_of[o], passed.get((o, k), 0)
            while True:
                shape = ((1 << duration[o]) - 1) << time % period
                shape = (shape | shape >> period) & whole
                if not any(shape & taken[machine] for machine in machines):
                    if not left:
                        break
                    left -= 1
                time += 1
                if time > latest:
                    return None
            for machine in machines:
                taken[machine] |= shape
            start[o].append(time)
        return start

    def excess(self, start: list[list[int]]) -> tuple[int, int]:
        """How far the devices are above their limits, and amounts times the time that they are held for."""
        above = area = 0
        for room in self.graph.reservoirs:
            always, sometimes = 0, [0] * self.period
            for first, last, amount in room.held:
                for begin, end in zip(start[first], start[last], strict=True):
                    length = end + self.graph.duration[last] - begin
                    whole, rest = divmod(length, self.period)
                    always += amount * whole
                    area += amount * length
                    for time in range(begin, begin + rest):
                        sometimes[time % self.period] += amount
            above += max(0, always + max(sometimes) - room.limit)
        return above, area


def placed_kernels(
    graph: FamilyGraph, unroll: int, clock: Clock, tuning: ModuloTuning, *, seed: int = 0
) -> Iterator[Kernel | None]:
    """Kernels of ``unroll`` microbatches with the true times, made on several grids; ``None`` after a trial without result.

    On a grid every way to another device takes a step longer than it must, then just as long: the first takes up latency and
    rounding, the second holds less memory. The period there is the shortest that is found, in growing steps, then by bisection.
    """
    longest = max(graph.duration)
    if not longest:
        return
    grids = dict.fromkeys(max(1, round(longest / steps)) for steps in range(1, tuning.coarse_steps + 1))
    exact = all(time % longest == 0 for edge in graph.precedences for time in (edge.lag, graph.duration[edge.before]))
    for grid in [longest] if exact else grids:
        for slack in (0,) if exact else (1, 0):
            coarse = graph.rounded(grid, slack)
            low = _least_period_in_memory(coarse, unroll)
            most, rise, high, period = int(tuning.most_stretch * low), 1, 0, low
            while period <= most and low < (high or period + 1):
                rough = placed(coarse, period, unroll, clock, tuning, seed)
                found = None if rough is None else with_least_period(rough, graph)
                yield found
                if found is not None and found.period <= unroll * max(graph.work_per_microbatch):
                    break
                if found is None:
                    low = period + 1
                else:
                    high = period
                period, rise = ((low + high) // 2, rise) if high else (period + rise, 2 * rise)


def _least_period_in_memory(graph: FamilyGraph, unroll: int) -> int:
    """A lower bound of the period: also by what a device holds at least, times for how long."""
    bound = least_period(graph, unroll)
    for room in graph.reservoirs:
        area = sum(held.amount * (graph.path(held.first, held.last) or 0) for held in room.held)
        if room.limit:
            bound = max(bound, -(-unroll * area // room.limit))
    return bound


def placed(graph: FamilyGraph, period: int, unroll: int, clock: Clock, tuning: ModuloTuning, seed: int) -> Kernel | None:
    """A kernel of ``unroll`` microbatches with this period within the memory limits, if one is found.

    For graphs of few steps per operation.
    """
    chance = random.Random(seed)
    table = _ReservationTable(graph, period, unroll)
    passed: dict[tuple[int, int], int] = {}
    best = table.placed(passed)
    value = None if best is None else table.excess(best)
    for _ in range(tuning.placements // len(table.sequence)):
        if value is not None and not value[0]:
            break
        clock.charge(_SECONDS * len(table.sequence))
        changed = dict(passed)
        for _ in range(chance.choice((1, 1, 2, 3))):
            changed[chance.choice(table.sequence)] = chance.randint(0, tuning.most_passed)
        start = table.placed(changed)
        found = None if start is None else table.excess(start)
        if found is not None and (value is None or found <= value):
            best, value, passed = start, found, changed
    if best is None or value is None or value[0]:
        return None
    return Kernel(graph, period, tuple(np.array(row, dtype=np.int64) for row in best))


def with_least_period(kernel: Kernel, graph: FamilyGraph) -> Kernel | None:
    """The cyclic order of every device with the times of another graph (of the same families), in the least period it allows.

    ``None``: operations that take no time wait for each other.
    """
    unroll, period = kernel.unroll, kernel.period
    rows: list[tuple[int, int, int, int]] = []
    for _, families in kernel.graph.machines:
        ops = [
            (begin % period, graph.duration[o] > 0, begin // period, o * unroll + k)
            for o in families
            for k, begin in enumerate(kernel.start[o].tolist())
        ]
        ops.sort()
        for a, b in zip(ops, ops[1:] + ops[:1], strict=True):
            rows.append((a[3], b[3], b[2] - a[2] - (a is ops[-1]), graph.duration[a[3] // unroll]))
    for before, after, shift, lag in graph.precedences:
        for k in range(unroll):
            iteration, copy = divmod(k - shift, unroll)
            rows.append((before * unroll + copy, after * unroll + k, iteration, graph.duration[before] + lag))
    precedences = np.array(sorted(rows, key=lambda row: row[1]), dtype=np.int64).reshape(-1, 4).T
    low, high = unroll * max(graph.work_per_microbatch), int(precedences[3].sum())
    best = _earliest(precedences, unroll * len(graph.families), high)
    while best is not None and low < high:
        middle = (low + high) // 2
        found = _earliest(precedences, len(best), middle)
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    return None if best is None else Kernel(graph, high, tuple(best.reshape(-1, unroll)))


def _earliest(precedences: IntArray, size: int, period: int) -> IntArray | None:
    """The least starts with ``start[after] >= start[before] + iterations * period + wait`` per column; ``None``: a circle."""
    before, after, iterations, wait = precedences
    heads, at = np.unique(after, return_index=True)
    start = np.zeros(size, dtype=np.int64)
    for _ in range(size + 1):
        least = np.maximum.reduceat(start[before] + iterations * period + wait, at)
        if (least <= start[heads]).all():
            return start
        start[heads] = np.maximum(start[heads], least)
    return None
