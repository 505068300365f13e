"""Heads and tails: how early an operation can start, and how much there is at least behind it.

They are those of the n-th operation of each family in a schedule in order, which loses nothing
(:mod:`ppopt.constraints.graphs`). Tails are heads of the reversed graph.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ppopt.constraints import FamilyGraph, Precedence
from ppopt.pipeline import IntArray

FAR = 2**62
"""``-FAR`` is the head of an operation that nothing is known of; no horizon reaches ``FAR / 2``."""
_INSTANCES = 2**22
"""Most numbers in the arrays of heads counted from each device's own start; the first instances are kept."""

FAMILIES = 10_000
"""Where there are more families, as where each of hundreds of microbatches has its own, heads follow from paths alone: what each
depends on takes the square of their number, in time and memory. Measured, 8 devices and 512 microbatches that differ: the
one-machine bound takes 1 s in place of 4 and is the same, that within memory is 0.1 % lower; with 2048 2 s in place of 10."""


def most_instances(graph: FamilyGraph) -> int:
    """Of each family, how many heads are counted from each device's own start."""
    return max(1, _INSTANCES // (graph.devices * len(graph.families)))


def heads(graph: FamilyGraph, *, memory: bool, own: bool = False, most: int | None = None, work: bool = True) -> list[IntArray]:
    """Earliest starts: one array per family, ``[instance]``; not decreasing.

    They follow from the precedences, the order within a family, the work that its device must have done before an instance,
    and, with ``memory``, what memory implies. With ``own`` (of a graph without links) the arrays are ``[device, instance]``:
    starts counted from that device's own first start (below ``-FAR / 2``: nothing is known). ``most`` keeps the first instances
    only. Without ``work`` nothing follows from what different families take together.

    *Memory.* Where ``after(n)`` waits for ``before(n - shift)`` and that for ``after(n - shift)``, the head of ``after`` rises by
    the way from the one to the other every ``shift`` instances.
    *Machine.* Before ``o(n)`` starts, each of its machines has run ``n + 1`` instances of each ancestor of ``o`` that is of
    that machine, and ``n`` instances of ``o``. Not told beyond :data:`FAMILIES`.
    """
    cut = most if most is not None and most < max(graph.count, default=0) else None
    found = _heads(graph, memory and bool(graph.implied), own, cut, work and len(graph.families) <= FAMILIES)
    return list(found) if own else [start[0] for start in found]


@lru_cache(maxsize=4)  # heads and tails, with memory and without: one bound of a pipeline asks for what another one has asked for
def _heads(graph: FamilyGraph, memory: bool, own: bool, most: int | None, work: bool) -> tuple[IntArray, ...]:
    """``[device, instance]`` of each family, with one row where starts are those from the begin of the schedule; read-only."""
    if not own and not work and max(graph.count, default=0) <= 1:
        return _by_paths(graph)
    result: list[IntArray] = []
    duration, members = np.array(graph.duration), [np.array(machine.families, dtype=np.int64) for machine in graph.machines]
    first = np.empty((graph.devices if own else 1, len(graph.families)), dtype=np.int64)
    waits: dict[int, list[Precedence]] = {}
    for wait in graph.implied if memory else ():
        waits.setdefault(wait.after, []).append(wait)
    for family, (time, device) in enumerate(zip(graph.duration, graph.owner, strict=True)):
        index = np.arange(graph.count[family] if most is None else min(most, graph.count[family]))
        if own:
            start = np.full((graph.devices, len(index)), -FAR)
            start[device] = 0
        else:
            start = np.full((1, len(index)), graph.lead[family], dtype=np.int64)
        for before, _, _, lag in graph.into[family]:
            start = np.maximum(start, result[before] + (graph.duration[before] + lag))
        for place in graph.machines_of[family] if work else ():
            ancestors = ancestors_among(graph, family, members[place])[::-1]
            earliest = np.minimum.accumulate(first[:, ancestors], axis=1)
            taken = np.cumsum(duration[ancestors])
            if len(index) < len(ancestors):  # one way or the other: the loop is over the fewer ones
                for n in index.tolist():
                    start[:, n] = np.maximum(start[:, n], (earliest + (n + 1) * taken).max(axis=1) + n * time)
            else:
                for least, run in zip(earliest.T, taken.tolist(), strict=True):
                    start = np.maximum(start, least[:, None] + (index + 1) * run + index * time)
        start = np.maximum.accumulate(start - index * time, axis=1) + index * time
        for wait in waits.get(family, ()):
            if wait.shift < len(index) and (rise := graph.round_trip(wait)) is not None:
                start = _lifted(start, wait.shift, rise)
        first[:, family] = start[:, 0]
        start.flags.writeable = False
        result.append(start)
    return tuple(result)


def _by_paths(graph: FamilyGraph) -> tuple[IntArray, ...]:
    """:func:`_heads` of families of one instance or none, by paths alone: one number each, which arrays would only slow down."""
    starts: list[int] = []
    for lead, precedences in zip(graph.lead, graph.into, strict=True):
        starts.append(max([lead, *(starts[before] + graph.duration[before] + lag for before, _, _, lag in precedences)]))
    row = np.array([starts], dtype=np.int64)
    row.flags.writeable = False
    return tuple(row[:, o : o + count] for o, count in enumerate(graph.count))


def ancestors_among(graph: FamilyGraph, family: int, among: IntArray) -> IntArray:
    """Those of some families that a family depends on, in order."""
    bits = np.frombuffer(graph.ancestors[family].to_bytes(len(graph.families) // 8 + 1, "little"), dtype=np.uint8)
    found: IntArray = among[np.unpackbits(bits, bitorder="little")[among] > 0]
    return found


def _lifted(start: IntArray, shift: int, rise: int) -> IntArray:
    """The least array at or above ``start`` that rises by ``rise`` or more every ``shift`` instances (and is not decreasing)."""
    rows = -(-start.shape[1] // shift)
    padded = np.pad(start, ((0, 0), (0, rows * shift - start.shape[1])), mode="edge").reshape(len(start), rows, shift)
    steps = (np.arange(rows) * rise)[None, :, None]
    lifted = np.maximum.accumulate(padded - steps, axis=1) + steps
    return np.maximum.accumulate(lifted.reshape(len(start), -1)[:, : start.shape[1]], axis=1)


def tails(graph: FamilyGraph, *, memory: bool, own: bool = False, most: int | None = None, work: bool = True) -> list[IntArray]:
    """Least times from an instance's end to the end of all (``own``: of the device): per family, from its last instance on."""
    return heads(graph.reversed(), memory=memory, own=own, most=most, work=work)[::-1]
