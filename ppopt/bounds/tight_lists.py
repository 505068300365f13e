"""Listed cuts (:mod:`ppopt.bounds.listed_cuts`) that edge finding and shaving leave, and their bounds by edge finding."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import NamedTuple, Protocol

from ppopt.bounds.cut_list import BOUNDS, EDGES, LOOKED, SHAVING, Begun, Listed
from ppopt.bounds.edge_finding import EdgeFinding
from ppopt.bounds.many_cuts import ManyCuts
from ppopt.bounds.shaving import Shaving, Windows, nothing_gained
from ppopt.clock import Clock, Limits, in_threads
from ppopt.constraints import FamilyGraph
from ppopt.op import Kind
from ppopt.pipeline import IntArray


class OnCut(NamedTuple):
    """A listed cut, by its place in the list: where its stages end, what its families take, and when its operations can start and
    end in a schedule of at most ``most`` ticks; all in ticks."""

    place: int
    ends: IntArray
    durations: IntArray
    windows: Windows
    most: int


class Decision(NamedTuple):
    """What is known of a cut: ``found``, the ticks of a schedule that takes so little; ``least``: no schedule takes less.

    Nothing found, and ``least`` no more than was asked for: it is not decided yet.
    """

    found: int | None = None
    least: int = 0


class Solver(Protocol):
    """Looks for schedules on cuts that shaving leaves; several threads may ask at once."""

    @property
    def decides(self) -> bool:
        """Whether it can decide (:meth:`decide`)."""

    def look(self, cut: OnCut, clock: Clock) -> int | None:
        """The ticks that a schedule takes which is quickly found; ``None``: none is."""

    def decide(self, cut: OnCut, limits: Limits) -> Decision:
        """Whether there is one at all, as far as there is time; it goes on where it stopped."""


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
    listed: Listed, many: ManyCuts, graph: FamilyGraph, scale: int, limits: Limits, solver: Solver | None = None
) -> None:
    """Leave out listed cuts that shaving refutes, those of the least bounds first, as far as there is time: some way on at first,
    which raises the bound of all sooner (:meth:`~ppopt.bounds.cut_list.Listed.target`).

    ``graph`` and ``scale``: as for :class:`~ppopt.bounds.edge_finding.EdgeFinding`. ``solver``: looks at those that are left; all
    are asked for less than what it has found.
    """
    edges = EdgeFinding(graph, scale)
    if listed.gained is None:
        listed.gained, listed.least = nothing_gained(edges), listed.bound
    while not limits.clock.over and (target := listed.target(*asked_by(solver))) is not None:
        below, few = target
        todo = listed.waiting(below, *asked_by(solver))
        _Turn(listed, todo, below, solver, limits).run(edges, durations_on(listed.ends[todo], many, graph), few)


def asked_by(solver: Solver | None) -> tuple[int, bool]:
    """What listed cuts are asked for in the end (:meth:`~ppopt.bounds.cut_list.Listed.target`)."""
    return (SHAVING, False) if solver is None else (LOOKED, solver.decides)


class _Turn:
    """Some of the listed cuts, ``todo``, are to be refuted below ``target`` ticks, by several threads."""

    def __init__(self, listed: Listed, todo: IntArray, target: int, solver: Solver | None, limits: Limits) -> None:
        self._listed, self._todo, self._target = listed, todo, target
        self._solver, self._limits = solver, limits
        self._found, self._lock = listed.below, Lock()
        """What is found so far, in ticks."""
        self._left = list[OnCut]()
        """What shaving leaves and nothing is found on, below the target."""

    def run(self, edges: EdgeFinding, durations: IntArray, few: int) -> None:
        """Shave and look; decide what is left, unless these are more than ``few``: then it ends there."""
        clock, waiting = self._limits.clock, iter(range(len(self._todo)))

        def shave_next(_: int) -> None:
            while not clock.over and len(self._left) <= few and (at := next(waiting, None)) is not None:
                self._settle(edges, int(self._todo[at]), durations[at])

        in_threads(shave_next, self._limits)
        if len(self._left) <= few and self._solver is not None and self._solver.decides:
            self._decide(self._solver)
        self._listed.shorten(self._found)

    def _settle(self, edges: EdgeFinding, place: int, durations: IntArray) -> None:
        """Refute that a cut has less than the target, and than what is found, or look for it, until nothing more is found."""
        listed, better = self._listed, True
        while better and listed.bounds[place] < (below := min(self._target, self._found)):
            less = self._shave(edges, place, durations, below)
            with self._lock:
                self._found, better = min(self._found, less or self._found), less is not None

    def _shave(self, edges: EdgeFinding, place: int, durations: IntArray, below: int) -> int | None:
        """Refute that a cut has less than ``below``, or look for it: what is found."""
        listed, clock, key = self._listed, self._limits.clock, (self._listed.ends[place].tobytes(), below)
        begun = listed.begun.pop(key, None) or Begun(Shaving(edges, durations, below - 1, listed.gained))
        shaving = begun.shaving
        shaving.go_on(clock)
        if shaving.refuted:
            listed.bounds[place] = below
            return None
        if not shaving.ended:
            listed.begun[key] = begun
            return None
        before = listed.asked[place, SHAVING]
        listed.asked[place, SHAVING] = below if before <= listed.bounds[place] else min(before, below)  # else refuted otherwise
        cut = OnCut(place, listed.ends[place], durations, shaving.windows, below - 1)
        less = None
        if self._solver is not None and not begun.looked:
            less = self._solver.look(cut, clock)
            begun.looked = less is not None or not clock.over
        if begun.looked and below >= self._found:  # else it may have less than the best all the same
            listed.asked[place, LOOKED] = below
        if less is None and self._solver is not None and (self._solver.decides or not begun.looked):
            listed.begun[key] = begun
            self._left.append(cut)
        return less

    def _decide(self, solver: Solver) -> None:
        """Decide whether those that are left have less than the target, one after the other, until one has."""
        clock = self._limits.clock
        each = replace(self._limits, workers=max(self._limits.threads // max(len(self._left), 1), 1))
        waiting = iter(self._left)

        def decide_next(_: int) -> None:
            while solver.decides and not clock.over and (cut := next(waiting, None)) is not None and cut.most < self._found:
                decision = solver.decide(cut, each)
                self._listed.bounds[cut.place] = max(int(self._listed.bounds[cut.place]), decision.least)
                with self._lock:
                    self._found = min(self._found, decision.found or self._found)

        in_threads(decide_next, self._limits)


def durations_on(ends: IntArray, many: ManyCuts, graph: FamilyGraph) -> IntArray:
    """The durations of a graph's families on some cuts: a row for each."""
    kinds = (Kind.I if family.kind == Kind.B else Kind(family.kind) for family in graph.families)
    return many.durations(ends)[:, [many.parts.index((kind, f.stage)) for kind, f in zip(kinds, graph.families, strict=True)]]
