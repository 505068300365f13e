"""What the loop of the state graph (:mod:`ppopt.bounds.state_loop`) works on: a graph of families in numbers, and its tables."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ppopt.bounds.state_loop import NEVER
from ppopt.constraints import FamilyGraph
from ppopt.op import Kind
from ppopt.pipeline import IntArray

Numbers = npt.NDArray[np.int16]
Places = npt.NDArray[np.int32]
_ROOM = 2**62
"""More than any device holds: for what takes no memory."""


class Rules(NamedTuple):
    """A graph of families, each of which waits for one other; one of them, the first, for none.

    By family: ``before``, what it waits for (-1: nothing), and ``delay``, the lag of that; its ``duration`` and ``machine``;
    ``binding``, before what time something has to arrive for a device to idle that could run it (``NEVER``: at any); ``own``,
    the last one before it that is of its device (-1: none); ``room``, what its device may hold beside it; ``place``, where it is
    among those of which results are on their way for a while (-1: none are).

    By these: ``lag``, how long, and the machines that results go to, ``goes_to`` from ``goes_begin`` on. By machine: the
    families, ``family`` from ``begin`` on; whether one has it for itself (``alone``: then it starts as soon as it can); what
    takes memory, what gives it back, and how much, from ``hold_begin`` on.

    ``width``: the numbers of a state. ``span``: the machine whose own end is the end of everything, -1: none is. ``factor``,
    ``shift``, ``mask``: of the hash table.
    """

    width: int
    families: int
    machines: int
    sent: int
    first: int
    span: int
    shift: int
    mask: int
    before: IntArray
    delay: IntArray
    duration: IntArray
    machine: IntArray
    alone: IntArray
    binding: IntArray
    own: IntArray
    room: IntArray
    place: IntArray
    tail: IntArray
    lag: IntArray
    goes_begin: IntArray
    goes_to: IntArray
    begin: IntArray
    family: IntArray
    hold_begin: IntArray
    taken: IntArray
    given: IntArray
    amount: IntArray
    factor: IntArray

    @property
    def largest(self) -> int:
        """No number that occurs is larger, but for the room of what takes no memory."""
        return int(self.amount.sum()) * 2**15

    @classmethod
    def of(cls, graph: FamilyGraph, span: bool) -> Rules:
        """Those of a graph. ``span``: of the span of the first family's device."""
        families = len(graph.families)
        before = np.array([into[0].before if into else -1 for into in graph.into])
        delay = np.array([into[0].lag if into else 0 for into in graph.into])
        duration = np.array(graph.duration)
        rows = [machine.families for machine in graph.machines[: graph.owners] if machine.families]
        machine = np.empty(families, dtype=np.int64)
        for place, row in enumerate(rows):
            machine[list(row)] = place
        first = int(np.flatnonzero(before < 0)[0])
        forward = np.array([family.kind == Kind.F for family in graph.families])
        several = (np.bincount(machine[forward], minlength=len(rows)) > 1)[machine]
        delayed = np.flatnonzero(delay)
        sent, carried = np.unique(before[delayed], return_inverse=True)
        place_of, lag = np.full(families, -1), np.zeros(len(sent), dtype=np.int64)
        place_of[sent] = np.arange(len(sent))
        np.maximum.at(lag, carried, delay[delayed])
        holds = sorted(graph.held, key=lambda hold: int(machine[hold.first]))
        unit = math.gcd(*(hold.amount for hold in holds)) or 1
        room = np.full(families, _ROOM)
        claimed = np.zeros(families, dtype=object)
        for hold in holds:
            claimed[hold.first] += hold.amount
        for family in np.flatnonzero(claimed).tolist():
            room[family] = (graph.reservoirs[graph.owner[family]].limit - claimed[family]) // unit
        goes = [sorted({int(machine[of]) for of in delayed[carried == place]}) for place in range(len(sent))]
        width = 2 * families + len(sent) + 1
        return cls(
            width=width,
            families=families,
            machines=len(rows),
            sent=len(sent),
            first=first,
            span=int(machine[0]) if span else -1,
            shift=32,
            mask=0,
            before=before,
            delay=delay,
            duration=duration,
            machine=machine,
            alone=np.array([len(row) == 1 and first not in row for row in rows], dtype=np.int64),
            binding=np.where(forward & several, NEVER, duration),
            own=np.array([_own(family, before, machine) for family in range(families)]),
            room=room,
            place=place_of,
            tail=np.minimum(graph.tail, NEVER // 4),
            lag=lag,
            goes_begin=_begins(goes),
            goes_to=_joined(goes),
            begin=_begins(rows),
            family=_joined(rows),
            hold_begin=np.searchsorted([machine[hold.first] for hold in holds], np.arange(len(rows) + 1)),
            taken=np.array([hold.first for hold in holds], dtype=np.int64),
            given=np.array([hold.last for hold in holds], dtype=np.int64),
            amount=np.array([hold.amount // unit for hold in holds], dtype=np.int64),
            factor=np.random.default_rng(0).integers(2**30, 2**31, size=width),
        )

    def with_slots(self, bits: int) -> Rules:
        """For a hash table with so many slots, as a power of two."""
        return self._replace(shift=32 - bits, mask=2**bits - 1)


def _own(family: int, before: IntArray, machine: IntArray) -> int:
    of = int(before[family])
    while of >= 0 and machine[of] != machine[family]:
        of = int(before[of])
    return of


def _begins(rows: list[list[int]] | list[tuple[int, ...]]) -> IntArray:
    return np.cumsum([0, *map(len, rows)])


def _joined(rows: list[list[int]] | list[tuple[int, ...]]) -> IntArray:
    return np.array([entry for row in rows for entry in row], dtype=np.int64)


class State(NamedTuple):
    """A state, and what follows of it by machine.

    ``behind``: by family, how many operations fewer than of the first have started. ``left``: by family, what is left of one
    that runs; ``MISSED``: its device idles and could have started one before; else 0. ``way``: by family whose results are on
    their way for a while, the time until the last one arrives. ``closed``: whether no microbatch begins any more, one number. By
    machine, for how long it is ``busy`` and what it ``runs`` then, or has run up to an event.
    """

    behind: IntArray
    left: IntArray
    way: IntArray
    closed: IntArray
    busy: IntArray
    runs: IntArray

    @classmethod
    def empty(cls, rules: Rules) -> State:
        """Nothing has begun."""
        sizes = (rules.families, rules.families, rules.sent, 1, rules.machines, rules.machines)
        return cls(*(np.zeros(size, dtype=np.int64) for size in sizes))


class Facts(NamedTuple):
    """What is found out about a state.

    By family whether its next operation ``fits`` the memory and ``can`` run where its machine is free. By machine whether it is
    ``able`` to run something, and the ``shortest`` of that which binds it. ``path``: a way from family to family. What a machine
    may choose is in ``option`` from ``option_begin`` on: twice a family, 1 more where it is the last microbatch, or nothing.
    """

    fits: IntArray
    can: IntArray
    able: IntArray
    shortest: IntArray
    path: IntArray
    option: IntArray
    option_begin: IntArray

    @classmethod
    def empty(cls, rules: Rules) -> Facts:
        """Nothing is known."""
        count, machines = rules.families, rules.machines
        sizes = (count, count, machines, machines, count, count + machines + 1, machines + 1)
        return cls(*(np.zeros(size, dtype=np.int64) for size in sizes))


class Edges(NamedTuple):
    """Edges by source: the number of the next state, whether a microbatch begins, and the time."""

    target: Places
    begun: Numbers
    elapsed: Numbers

    @classmethod
    def room(cls, count: int) -> Edges:
        """For so many."""
        return cls(np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int16), np.empty(count, dtype=np.int16))

    def first(self, count: int) -> Edges:
        """Some of them, to be kept."""
        return Edges(self.target[:count].copy(), self.begun[:count].copy(), self.elapsed[:count].copy())


class Done(NamedTuple):
    """By state that was looked at, the number of its edges and its depth; ``totals``: states that were looked at, states that are
    known, edges."""

    edges: IntArray
    depth: Places
    totals: IntArray

    @classmethod
    def room(cls, count: int) -> Done:
        """For so many states."""
        return cls(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int32), np.zeros(3, dtype=np.int64))
