"""Listed cuts (:mod:`ppopt.bounds.listed_cuts`) that edge finding and shaving leave, and their bounds by edge finding."""

from __future__ import annotations

from ppopt.bounds.edge_finding import EdgeFinding
from ppopt.bounds.listed_cuts import BOUNDS, EDGES, SHAVING, Listed
from ppopt.bounds.many_cuts import ManyCuts
from ppopt.bounds.shaving import Shaving, nothing_gained
from ppopt.clock import Limits, in_threads
from ppopt.constraints import FamilyGraph
from ppopt.op import Kind
from ppopt.pipeline import IntArray


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


def shave_listed(listed: Listed, many: ManyCuts, graph: FamilyGraph, scale: int, limits: Limits) -> None:
    """Leave out listed cuts that shaving refutes, those of the least bounds first, as far as there is time.

    ``graph`` and ``scale``: as for :class:`~ppopt.bounds.edge_finding.EdgeFinding`.
    """
    edges = EdgeFinding(graph, scale)
    gained = listed.gained = nothing_gained(edges) if listed.gained is None else listed.gained
    todo = listed.todo(SHAVING)
    durations, waiting = durations_on(listed.ends[todo], many, graph), iter(range(len(todo)))

    def shave_next(_: int) -> None:
        while not limits.clock.over and (number := next(waiting, None)) is not None:
            shaving = Shaving(edges, durations[number], listed.below - 1, gained)
            shaving.go_on(limits.clock)
            if shaving.ended:
                listed.asked[todo[number], SHAVING] = listed.below
            if shaving.refuted:
                listed.bounds[todo[number]] = listed.below

    in_threads(shave_next, limits)
    listed.shorten(listed.below)


def durations_on(ends: IntArray, many: ManyCuts, graph: FamilyGraph) -> IntArray:
    """The durations of a graph's families on some cuts: a row for each."""
    kinds = (Kind.I if family.kind == Kind.B else Kind(family.kind) for family in graph.families)
    return many.durations(ends)[:, [many.parts.index((kind, f.stage)) for kind, f in zip(kinds, graph.families, strict=True)]]
