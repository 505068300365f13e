"""Listed cuts (:mod:`ppopt.bounds.listed_cuts`) that edge finding and shaving leave, and their bounds by edge finding."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from threading import Lock
from typing import TypeAlias

import numpy as np

from ppopt.bounds.edge_finding import EdgeFinding
from ppopt.bounds.listed_cuts import BOUNDS, EDGES, LOOKED, SHAVING, Listed
from ppopt.bounds.many_cuts import ManyCuts
from ppopt.bounds.shaving import Shaving, Windows, nothing_gained
from ppopt.clock import Limits, in_threads
from ppopt.constraints import FamilyGraph
from ppopt.op import Kind
from ppopt.pipeline import IntArray

Look: TypeAlias = Callable[[IntArray, IntArray, Windows, int], int | None]
"""Looks for a schedule on a cut, given where its stages end, the durations of its families, the windows of its operations, and
how many ticks it may take at most: the ticks that what is found takes, ``None``: nothing is found."""

WAYS = Fraction(1, 2), Fraction(3, 4), Fraction(1)
"""Parts of the way from the bound of a list to the best: cuts are to be refuted below each of them, one after the other.
Measured, 28 layers with placement and chunks open, 60 s: of one with 1800 listed cuts 0.6 to 1.1 % stay open, 2.5 % where they
are asked below the best alone; five that are proved take as long."""


def tighten(listed: Listed, many: ManyCuts, graph: FamilyGraph, scale: int, limits: Limits) -> None:
    """Leave out listed cuts that edge finding refutes; then raise the bounds of the others, the least ones first, as far as there
    is time.

    ``graph`` and ``scale``: as for :class:`EdgeFinding`, of a pipeline with whole weight gradients.
    """
    edges = EdgeFinding(graph, scale)
    for by in (EDGES, BOUNDS):
        todo = listed.todo(by)
        durations, bounds = durations_on(listed.ends[todo], many, graph), listed.bounds[todo]
        listed.bounds[todo], done = edges.asked(durations, bounds, listed.below, limits, once=by == EDGES)
        listed.asked[todo[done], by] = listed.below
        listed.shorten(listed.below)
        if not done.all():
            return
        listed.tight = True


def shave_listed(
    listed: Listed, many: ManyCuts, graph: FamilyGraph, scale: int, limits: Limits, look: Look | None = None
) -> None:
    """Leave out listed cuts that shaving refutes, those of the least bounds first, as far as there is time: some way on at first
    (:data:`WAYS`), which raises the bound of all sooner.

    ``graph`` and ``scale``: as for :class:`~ppopt.bounds.edge_finding.EdgeFinding`. ``look``: looks at those that are left, in
    several threads; all are asked for less than what it has found.
    """
    edges, found, lock = EdgeFinding(graph, scale), listed.below, Lock()
    gained = listed.gained = nothing_gained(edges) if listed.gained is None else listed.gained
    least = listed.least = listed.bound if listed.least is None else listed.least

    def shave(place: int, own: IntArray, below: int) -> int | None:
        """Refute that a cut has less than ``below``, or look for it: what is found."""
        key = listed.ends[place].tobytes(), below
        shaving = listed.begun.pop(key, None) or Shaving(edges, own, below - 1, gained)
        shaving.go_on(limits.clock)
        if shaving.refuted:
            listed.bounds[place] = below
            return None
        less = look(listed.ends[place], own, shaving.windows, below - 1) if shaving.ended and look is not None else None
        if limits.clock.over and less is None:
            listed.begun[key] = shaving
        else:
            of = [SHAVING, LOOKED] if below >= found else [SHAVING]  # else it may have less than the best all the same
            listed.asked[place, of] = np.minimum(listed.asked[place, of], below)
        return less

    def shave_next(_: int) -> None:
        nonlocal found
        while not limits.clock.over and (number := next(waiting, None)) is not None:
            place, better = int(todo[number]), True
            while better and listed.bounds[place] < (below := min(target, found)) < listed.asked[place, by]:
                less = shave(place, durations[number], below)
                with lock:
                    found, better = min(found, less or found), less is not None

    for way in WAYS:
        target = least + math.ceil(way * (listed.below - least))
        by = LOOKED if way == 1 and look is not None else SHAVING
        todo = listed.todo(by, target)
        durations, waiting = durations_on(listed.ends[todo], many, graph), iter(range(len(todo)))
        in_threads(shave_next, limits)
        if limits.clock.over:
            break
    listed.shorten(listed.below)


def durations_on(ends: IntArray, many: ManyCuts, graph: FamilyGraph) -> IntArray:
    """The durations of a graph's families on some cuts: a row for each."""
    kinds = (Kind.I if family.kind == Kind.B else Kind(family.kind) for family in graph.families)
    return many.durations(ends)[:, [many.parts.index((kind, f.stage)) for kind, f in zip(kinds, graph.families, strict=True)]]
