"""Bounds in closed form: work, one machine with heads and tails, memory. Milliseconds for alike microbatches, whatever M is."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ppopt.bounds.bound import Bound, check_objective
from ppopt.bounds.copies import away, beside_copies
from ppopt.bounds.heads import FAMILIES, FAR, heads, most_instances, tails
from ppopt.constraints import (
    FamilyGraph,
    Share,
    pairs_of,
    pairs_save_time,
    relaxed_graph,
    relaxed_graphs,
    shared,
    waiting_in_turn,
)
from ppopt.op import Kind, Send
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Objective

_THRESHOLDS = 256
"""Heads and tails tried per device as thresholds, and per family as times by which a device has filled; any choice is valid."""
_ALONE = 256
"""Instances of a family up to which each counts by itself, those of all families at once. Measured on 200 families: with 64
instances each that takes a quarter of the time that it takes family by family, with 512 a third more."""

_kept = lru_cache(maxsize=8)
"""Where a placement is left open, the bound of each says which comes first, and then its search asks again."""


@beside_copies
@_kept
def machine(pipeline: Pipeline, objective: Objective = "makespan", *, pairs: bool = False) -> Bound | None:
    """The preemptive one-machine bound with heads and tails (Jackson, Carlier) of the best device or link.

    For any set J of operations of a device: ``min head + sum of durations + min tail <= makespan``, where a head is a lower
    bound on the operation's start, and a tail one on the time from its end to the end of the schedule (for the device
    span: from the device's own first start, to its own last end). The best J consists of all operations whose head and
    tail reach two thresholds. Heads and tails are those of the n-th operation of each family in an in-order schedule,
    which loses nothing (:mod:`ppopt.constraints.graphs`). Thresholds are the heads of the first and the tails of the last
    instances: between them the value is linear in the threshold up to rounding. Fewer thresholds are a weaker bound, never a
    wrong one.

    A link is a machine like a device, and so are, where transfers block, a device's computations and its transfers over one link
    together. For the device span a transfer is a mere delay.

    Valid for all routes, uneven durations, latency, fused and split backwards.

    ``pairs``: also for schedules with overlapped pairs. They may save time in the value above, as often as there are pairs;
    but these find room only between the first backward's head and the least tail of a forward, one after the other: with n pairs
    ``makespan >= value - n * saving`` and ``makespan >= head + n * overlap + tail``. And a pair takes longer than its backward
    alone, so that with n pairs the backwards need ``head + sum of durations + n * (overlap - backward) + tail``: forwards that
    are kept for pairs do not fill the time before the first backward. The bound is the least over n of the largest.
    Durations are in full there, heads and tails those of the graphs in which a pair's halves
    give way (:mod:`ppopt.constraints.graphs`).
    """
    return _one_machine(pipeline, objective, pairs, memory=False)


def memory(pipeline: Pipeline, objective: Objective = "makespan", *, pairs: bool = False) -> Bound | None:
    """What the memory limits alone imply (:func:`_memory`); where activations may be on the host, also what
    :func:`~ppopt.bounds.copies.away` says. ``None`` without limits. ``pairs`` as in :func:`machine`."""
    found = [_memory(pipeline, objective, pairs=pairs), away(pipeline, objective, pairs=pairs) if pipeline.engines else None]
    return max((bound for bound in found if bound is not None), key=lambda bound: bound.value, default=None)


@beside_copies
@_kept
def _memory(pipeline: Pipeline, objective: Objective = "makespan", *, pairs: bool = False) -> Bound | None:
    """What the memory limits of a pipeline without copies imply; ``None`` without limits. ``pairs`` as in :func:`machine`.

    The best of four arguments:

    *Turns.* Where a stage has room for C microbatches, its ``F(n)`` waits for ``I(n - C)`` or ``W(n - C)``, so every C
    instances take at least the shortest way from the start of ``F`` to the end of that backward
    (:func:`~ppopt.constraints.implied.implied_by_memory`). By itself, and in the heads and tails of the one-machine bound. Of
    microbatches that differ each waits for some earlier one (:func:`~ppopt.constraints.in_turn.waiting_in_turn`), in all four.

    *Area.* A device holds an amount from the start of ``F`` to the end of the backward, no shorter than that way; all these
    rectangles fit under ``limit``, rounded down to a multiple of the amounts' common divisor, between its first
    head and its least tail: ``makespan >= head + area / limit + tail``.

    *Filling.* In its first t ticks a device runs what claims memory only as far as that fits, and the rest not before its head;
    what it cannot run of t is idle time, and so at the end with u: ``value >= work + idle(t) + idle(u)`` where ``t + u <= work``
    (:func:`_filling`).
    """
    check_objective(objective)
    if pipeline.amounts.limit is None:
        return None
    found = [_one_machine(pipeline, objective, pairs, memory=True)]
    for graph in relaxed_graphs(pipeline, pairs):
        found += [_area(waiting_in_turn(graph), objective), _turns(graph)]
    for graph in relaxed_graphs(pipeline, pairs, links=False):
        found.append(_filling(waiting_in_turn(graph), objective))
    return max((bound for bound in found if bound is not None), key=lambda bound: bound.value, default=None)


def _one_machine(pipeline: Pipeline, objective: Objective, pairs: bool, memory: bool) -> Bound | None:
    check_objective(objective)
    own = objective == "span"
    graphs = [_within(memory, graph) for graph in relaxed_graphs(pipeline, pairs, links=not own)]
    ends = [_ends(graph, memory, own) for graph in graphs]
    found = [_busiest(graph, *sides, memory=memory, own=own, room={}) for graph, sides in zip(graphs, ends, strict=True)]
    if pairs and pairs_save_time(pipeline):
        whole = _within(memory, relaxed_graph(pipeline, Share.NEITHER, links=not own))
        sides = [_ends(whole, memory, own, work=False), *ends]
        head, tail = ([np.maximum.reduce(rows) for rows in zip(*of, strict=True)] for of in zip(*sides, strict=True))
        found.append(_busiest(whole, head, tail, memory=memory, own=own, room=_room(pipeline)))
    best = max(found, key=lambda bound: bound.value)
    return replace(best, proof=best.proof + ", transfers as mere delays") if own and pipeline.lines else best


def _within(memory: bool, graph: FamilyGraph) -> FamilyGraph:
    """The graph; with ``memory`` the one that has the waits of microbatches that differ, too."""
    return waiting_in_turn(graph) if memory else graph


def makespan_of(graph: FamilyGraph) -> int:
    """What every schedule of a graph takes, whatever it is relaxed from: its one-machine bound within memory."""
    return _busiest(graph, *_ends(graph, memory=True, own=False), memory=True, own=False, room={}).value


Heads: TypeAlias = Sequence[IntArray]


class Room(NamedTuple):
    """The shortest pair of a device, the most that a pair saves there, and by how much it is at least longer than its backward
    (below 0: shorter), in ticks."""

    overlap: int
    saving: int
    longer: int


def _room(pipeline: Pipeline) -> dict[int, Room]:
    """By device where pairs save time."""
    forward, gradient, rest = shared(pipeline, Share.NEITHER)
    found = {}
    for word in pairs_of(pipeline):
        rows, backs = ([(f.route, f.stage) for f in side] for side in (word.forwards, word.backwards))
        most = max(int(gradient[at] + rest[at]) for at in backs)
        overlaps = [int(pipeline.ticks.overlap[at]) for at in rows]
        saving = max(int(forward[at]) + most - overlap for at, overlap in zip(rows, overlaps, strict=True))
        found[int(pipeline.device_of[rows[0]])] = Room(min(overlaps), saving, min(overlaps) - most)
    return found


def _kind(graph: FamilyGraph, family: int) -> Kind | Send:
    """``I`` for whatever hands on a gradient."""
    kind = graph.families[family].kind
    return Kind.I if kind == Kind.B else kind


def _least_with_pairs(
    graph: FamilyGraph, families: Sequence[int], rows: Sequence[tuple[IntArray, ...]], value: int, room: Room
) -> int:
    """What is left of a device's ``value`` with as many pairs as lower it most (see :func:`machine`)."""
    of_kind = {kind: [i for i, o in enumerate(families) if _kind(graph, o) == kind] for kind in (Kind.F, Kind.I, Kind.W)}
    most = min(sum(graph.count[families[i]] for i in of_kind[kind]) for kind in (Kind.F, Kind.I))
    begin = max(0, min(int(rows[i][0][0]) for i in of_kind[Kind.I]))
    end = max(0, min(int(rows[i][1][0]) for i in of_kind[Kind.F]))
    backward = of_kind[Kind.I] + of_kind[Kind.W]
    alone = begin + max(0, min(int(rows[i][1][0]) for i in backward))
    alone += sum(graph.count[families[i]] * graph.duration[families[i]] for i in backward)
    return min(
        max(value - n * room.saving, alone + n * room.longer, begin + n * room.overlap + end if n else 0) for n in range(most + 1)
    )


def _ends(graph: FamilyGraph, memory: bool, own: bool, work: bool = True) -> tuple[Heads, Heads]:
    """Heads and tails of a graph."""
    most = most_instances(graph) if own else None
    head, tail = (of(graph, memory=memory, own=own, most=most, work=work) for of in (heads, tails))
    return head, tail


def _busiest(graph: FamilyGraph, head: Heads, tail: Heads, *, memory: bool, own: bool, room: Mapping[int, Room]) -> Bound:
    """The bound of the best device; ``room``: by device what its pairs can save, where the durations are those without pairs."""
    best, busiest, whole = 0, 0, ""
    for machine, (_, families) in enumerate(graph.machines):
        if not families:
            continue  # of a route that no microbatch takes
        rows = [tuple(array[machine] if own else array for array in (head[o], tail[o])) for o in families]
        value = best_set(rows, [graph.duration[o] for o in families], [graph.count[o] for o in families]).value
        computing = [graph.owner[o] for o in families if isinstance(graph.families[o].kind, Kind)]
        if computing and computing[0] in room:
            value = _least_with_pairs(graph, families, rows, value, room[computing[0]])
        if own:
            value += graph.around[machine]
        if value > best:
            best, busiest = value, machine
    if not own:
        for family, (first, last) in enumerate(zip(head, tail, strict=True)):
            value = int((first + last[::-1]).max()) + graph.duration[family]
            if value > best:
                best, busiest, whole = value, graph.owner[family], f", the way of one {graph.label[family]}"
    limits = " within its memory" if memory else ""
    return Bound(
        best, "memory" if memory else "one-machine", f"heads, work and tails of {graph.machines[busiest].name}{whole}{limits}"
    )


class BestSet(NamedTuple):
    """The operations whose head and tail reach two thresholds: the value is these and the work of the set."""

    value: int
    head: int
    tail: int


def best_set(rows: Sequence[tuple[IntArray, ...]], times: Sequence[int], counts: Sequence[int]) -> BestSet:
    """Largest ``a + b + work of the operations with head >= a and tail >= b`` over the thresholds a and b.

    ``rows``: per family its heads by instance from the first, and tails by instance from the last. Where they cover the
    first (last) instances only, those beyond count as too early once all that are covered are.
    """
    per_family = max(1, _THRESHOLDS // len(rows))
    a, b = (np.unique(np.concatenate([row[side][:per_family] for row in rows])) for side in (0, 1))
    a, b = (_spread(known[known > -FAR // 2], _THRESHOLDS) for known in (a, b))
    few = [count <= _ALONE and len(head) == len(tail) == count for (head, tail), count in zip(rows, counts, strict=True)]
    some = [(head, tail[::-1], time) for (head, tail), time, of in zip(rows, times, few, strict=True) if of]
    number, total = _reaching(some, a, b)
    present = number > 0
    for (head, tail), time, count, of in zip(rows, times, counts, few, strict=True):
        if of:
            continue
        early = np.searchsorted(head, a)
        late = np.searchsorted(tail, b)
        early, late = (np.where(n == len(side), count, n) for n, side in ((early, head), (late, tail)))
        left = np.maximum(count - early[:, None] - late[None, :], 0)
        present |= left > 0
        total += left * time
    value = np.where(present, total + a[:, None] + b[None, :], 0)
    if not value.size:
        return BestSet(0, 0, 0)
    first, last = np.unravel_index(int(value.argmax()), value.shape)
    return BestSet(int(value[first, last]), int(a[first]), int(b[last]))


def _reaching(families: Sequence[tuple[IntArray, IntArray, int]], a: IntArray, b: IntArray) -> tuple[IntArray, IntArray]:
    """``[a, b]``: how many instances of some families have a head and a tail that reach two thresholds, and what they take.

    ``families``: heads and tails by instance, and how long each of these takes. An instance counts for the largest thresholds
    that it reaches, and so for all smaller ones.
    """
    found = np.zeros((2, len(a), len(b)), dtype=np.int64)
    if families:
        head, tail = (np.concatenate([family[side] for family in families]) for side in (0, 1))
        time = np.repeat(np.array([time for *_, time in families], dtype=np.int64), [len(head) for head, *_ in families])
        first, last = np.searchsorted(a, head, side="right") - 1, np.searchsorted(b, tail, side="right") - 1
        known = (first >= 0) & (last >= 0)
        for of, each in zip(found, (np.ones_like(time), time), strict=True):
            np.add.at(of, (first[known], last[known]), each[known])
        found = found[:, ::-1, ::-1].cumsum(axis=1).cumsum(axis=2)[:, ::-1, ::-1]
    return found[0], found[1]


def _spread(rising: IntArray, most: int) -> IntArray:
    """No more than ``most`` of these numbers, the first and the last among them, and the others at even distances."""
    return rising[np.linspace(0, len(rising) - 1, min(most, len(rising))).astype(np.int64)]


def _area(graph: FamilyGraph, objective: Objective) -> Bound | None:
    """Memory held times the time that it is held for, against the limit times the time that there is. Not told beyond
    :data:`~ppopt.bounds.heads.FAMILIES`."""
    if len(graph.families) > FAMILIES:
        return None
    head = tail = None
    if objective == "makespan":
        head, tail = (of(graph, memory=False, most=1) for of in (heads, tails))
    best = None
    for device, (limit, held) in enumerate(graph.reservoirs):
        if not held:
            continue
        unit = math.gcd(*(hold.amount for hold in held))
        room = limit // unit
        area = sum(h.amount // unit * graph.count[h.first] * (graph.path(h.first, h.last) or 0) for h in held)
        value = -(-area // room)
        if head is not None and tail is not None:
            value += min(int(head[hold.first][0]) for hold in held) + min(int(tail[hold.last][0]) for hold in held)
        if best is None or value > best.value:
            best = Bound(value, "memory", f"memory times time of device {device}")
    return best


def _filling(graph: FamilyGraph, objective: Objective) -> Bound | None:
    """Work and idle time of a device while it fills and empties."""
    own = objective == "span"
    best = None
    for device, (first, last) in enumerate(zip(*(_unused(of, own) for of in (graph, graph.reversed())), strict=True)):
        work = graph.work[device]
        for time, idle in first:
            if time <= work:
                _, other = last[bisect_right(last, work - time, key=itemgetter(0)) - 1]
                value = work + idle + other + (graph.around[device] if own else 0)
                if best is None or value > best.value:
                    proof = f"work of {graph.machines[device].name}, and what it cannot do while it fills and empties"
                    best = Bound(value, "memory", proof)
    return best


def _unused(graph: FamilyGraph, own: bool) -> list[list[tuple[int, int]]]:
    """Per device, times since the begin (``own``: since its own first start), and how much of that it idles at least; both rise.

    By time t a device has run no more of an instance than since its head. Of what claims memory it has started no more than fits
    with what has been given back before t, at the earliest; what of that brings most time per memory comes first, parts of
    operations too.
    """
    head = heads(graph, memory=True, own=own, most=2 * _THRESHOLDS)
    found = []
    for device, (limit, held) in enumerate(graph.reservoirs):
        rows = {o: head[o][device] if own else head[o] for o in graph.machines[device].families}
        if not held:
            found.append([(0, 0)])
            continue
        known = min((int(row[-1]) for o, row in rows.items() if len(row) < graph.count[o]), default=FAR)
        ends = {o: row + graph.duration[o] for o, row in rows.items()}
        times = np.unique(np.concatenate([row[:_THRESHOLDS] for row in (*rows.values(), *(end + 1 for end in ends.values()))]))
        times = times[(times > 0) & (times <= known)]
        times = times if len(rows) <= _THRESHOLDS else _spread(times, 4 * _THRESHOLDS)
        most = limit + sum(hold.amount * graph.count[hold.first] for hold in held)
        number: Any = np.int64 if most * max(graph.duration) < FAR else object  # no product is larger
        room, claimed = np.full(len(times), limit, dtype=number), dict.fromkeys((hold.first for hold in held), 0)
        for first, last, amount in held:
            claimed[first] += amount
            room += amount * np.searchsorted(ends[last], times)
        done = _run([rows[o] for o in rows if o not in claimed], [graph.duration[o] for o in rows if o not in claimed], times)
        done = done.astype(number)
        for o in sorted(claimed, key=lambda o: Fraction(graph.duration[o], claimed[o]), reverse=True):
            if graph.duration[o]:
                run = _run([rows[o]], [graph.duration[o]], times).astype(number)
                part = np.minimum(run, room * graph.duration[o] // claimed[o])
                done = done + part
                room -= part * claimed[o] // graph.duration[o]
        idle = np.maximum.accumulate(np.concatenate(([0], times - done)))
        rising = np.flatnonzero(idle[1:] > idle[:-1])
        found.append([(0, 0), *((int(times[i]), int(idle[i + 1])) for i in rising)])
    return found


def _run(rows: Sequence[IntArray], durations: Sequence[int], times: IntArray) -> IntArray:
    """How much of some families' operations can be run by each of these times, if each starts at its head."""
    if not rows:
        return np.zeros(len(times), dtype=np.int64)
    if len(rows) == len(rows[0]) == 1:
        alone: IntArray = np.clip(times - rows[0], 0, durations[0])
        return alone
    begins = np.concatenate(rows)
    ends = begins + np.repeat(np.array(durations, dtype=np.int64), list(map(len, rows)))
    return _since(begins, times) - _since(ends, times)


def _since(moments: IntArray, times: IntArray) -> IntArray:
    """How long these moments have been over by each of the times, together."""
    moments = np.sort(moments)
    over = np.searchsorted(moments, times)
    passed: IntArray = over * times - np.concatenate(([0], np.cumsum(moments)))[over]
    return passed


def _turns(graph: FamilyGraph) -> Bound | None:
    """Whole turns of a stage's room, each as long as the shortest way from its forward to its backward."""
    best = None
    for wait in graph.implied:
        turns, time = -(-graph.count[wait.after] // wait.shift), graph.round_trip(wait)
        value = turns * (time or 0)
        if best is None or value > best.value:
            best = Bound(value, "memory", f"{turns} turns from {graph.label[wait.after]} to {graph.label[wait.before]}")
    return best
