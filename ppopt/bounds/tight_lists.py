"""Listed cuts (:mod:`ppopt.bounds.listed_cuts`) that edge finding and shaving leave, and their bounds by edge finding."""

from __future__ import annotations

import math
from dataclasses import replace
from threading import Lock
from typing import NamedTuple, Protocol

from ppopt.bounds.certificates import Reasons
from ppopt.bounds.cut_list import BOUNDS, EDGES, GIVEN_UP, HARD, LOOKED, SHAVING, Begun, Listed, Target
from ppopt.bounds.edge_finding import EdgeFinding
from ppopt.bounds.many_cuts import ManyCuts
from ppopt.bounds.shaving import Shaving, Windows, nothing_gained
from ppopt.bounds.ways import Part, Way
from ppopt.clock import Clock, Limits, in_threads
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

    Nothing found, and ``least`` no more than was asked for: it is not decided yet, and will not be if it is ``given_up``.
    """

    found: int | None = None
    least: int = 0
    given_up: bool = False


class Solver(Protocol):
    """Looks for schedules on cuts that shaving leaves; several threads may ask at once."""

    @property
    def decides(self) -> bool:
        """Whether it can decide (:meth:`decide`)."""

    def look(self, cut: OnCut, clock: Clock) -> int | None:
        """The ticks that a schedule takes which is quickly found; ``None``: none is."""

    def decide(self, cut: OnCut, limits: Limits) -> Decision:
        """Whether there is one at all, as far as there is time; it goes on where it stopped."""


def tighten(listed: Listed, many: ManyCuts, reasons: Reasons, scale: int, limits: Limits) -> None:
    """Leave out listed cuts that edge finding refutes; then raise the bounds of the others, the least ones first, as far as there
    is time.

    ``reasons``: of a pipeline with whole weight gradients; ``scale``: ticks here in one of theirs.
    """
    edges = EdgeFinding(reasons.graph, scale)
    for by in (EDGES, BOUNDS):
        todo = listed.todo(by)
        times, bounds = times_on(listed.ends[todo], many, reasons, scale), listed.bounds[todo]
        listed.bounds[todo], done = edges.asked(times, bounds, listed.below, limits, once=by == EDGES)
        listed.asked[todo[done], by] = listed.below
        listed.shorten(listed.below)
        if not done.all():
            return
        listed.tight = True


def shave_listed(
    listed: Listed, many: ManyCuts, reasons: Reasons, scale: int, limits: Limits, solver: Solver | None = None
) -> None:
    """Leave out listed cuts that shaving refutes, those of the least bounds first, as far as there is time: some way on at first,
    which raises the bound of all sooner (:meth:`~ppopt.bounds.cut_list.Listed.target`).

    ``reasons`` and ``scale``: as for :func:`tighten`. ``solver``: looks at those that are left; all are asked for less than what
    it has found.
    """
    edges = EdgeFinding(reasons.graph, scale)
    if listed.gained is None:
        listed.gained, listed.least = nothing_gained(edges), listed.bound
    while not limits.clock.over and (target := listed.target(*asked_by(solver))) is not None:
        todo = listed.waiting(target.below, *asked_by(solver))
        _Turn(listed, todo, target, solver, limits).run(edges, times_on(listed.ends[todo], many, reasons, scale))


def asked_by(solver: Solver | None) -> tuple[int, bool]:
    """What listed cuts are asked for in the end (:meth:`~ppopt.bounds.cut_list.Listed.target`)."""
    return (SHAVING, False) if solver is None else (LOOKED, solver.decides)


class _Turn:
    """Some of the listed cuts, ``todo``, are to be refuted below a target, by several threads."""

    def __init__(self, listed: Listed, todo: IntArray, target: Target, solver: Solver | None, limits: Limits) -> None:
        self._listed, self._todo, self._target = listed, todo, target
        self._solver, self._limits = solver, limits
        self._found, self._lock = listed.below, Lock()
        """What is found so far, in ticks."""
        self._left = list[OnCut]()
        """What is not settled below the target."""

    def run(self, edges: EdgeFinding, times: IntArray) -> None:
        """Shave and look, and decide what is quickly decided; then what is left, unless that is too many: then it ends there."""
        clock, few, waiting = self._limits.clock, self._target.few, iter(range(len(self._todo)))

        def shave_next(_: int) -> None:
            while not clock.over and len(self._left) <= few and (at := next(waiting, None)) is not None:
                self._settle(edges, int(self._todo[at]), times[at])

        begun = clock.spent
        in_threads(shave_next, self._limits)
        if not self._target.seconds:
            self._listed.spare += clock.spent - begun
        elif len(self._left) <= few:
            begun, own = clock.spent, self._limits.slice(self._target.seconds)
            self._decide_left(own)
            if self._target.seconds < math.inf:
                self._listed.spare -= self._target.seconds if own.clock.over else clock.spent - begun
        self._listed.shorten(self._found)

    def _settle(self, edges: EdgeFinding, place: int, times: IntArray) -> None:
        """Refute that a cut has less than the target, and than what is found, or look for it, until nothing more is found."""
        listed, better = self._listed, True
        while better and listed.bounds[place] < (below := min(self._target.below, self._found)):
            less = self._shave(edges, place, times, below)
            with self._lock:
                self._found, better = min(self._found, less or self._found), less is not None

    def _shave(self, edges: EdgeFinding, place: int, times: IntArray, below: int) -> int | None:
        """Refute that a cut has less than ``below``, or look for it: what is found."""
        listed, clock, key = self._listed, self._limits.clock, (self._listed.ends[place].tobytes(), below)
        begun = listed.begun.pop(key, None) or Begun(Shaving(edges, times[0], below - 1, listed.gained, times[1:]))
        shaving, since = begun.shaving, clock.spent
        shaving.go_on(clock)
        begun.seconds += clock.spent - since
        if shaving.refuted:
            listed.bounds[place] = below
            return None
        if not shaving.ended:
            listed.begun[key] = begun
            return None
        listed.note(place, SHAVING, below)
        less, solver = None, self._solver
        cut = OnCut(place, listed.ends[place], times[0], shaving.windows, below - 1)
        if solver is not None and not begun.looked:
            less = solver.look(cut, clock)
            begun.looked = less is not None or not clock.over
        if begun.looked and below >= self._found:  # else it may have less than the best all the same
            listed.asked[place, LOOKED] = below
        if less is None and begun.looked and not begun.tried and self._decides(cut):
            less = self._decide(cut, replace(self._limits, clock=clock.slice(begun.seconds), workers=1))
            begun.tried = less is not None or not clock.over
        if begun.tried:
            listed.note(place, HARD, below)
        if less is None and listed.bounds[place] < below and solver is not None and (solver.decides or not begun.looked):
            listed.begun[key] = begun
            self._left.append(cut)
        return less

    def _decides(self, cut: OnCut) -> bool:
        """Whether it can be decided whether a cut has so little."""
        return self._solver is not None and self._solver.decides and self._listed.asked[cut.place, GIVEN_UP] > cut.most + 1

    def _decide(self, cut: OnCut, limits: Limits) -> int | None:
        """Decide whether a cut has so little, as far as there is time: what is found."""
        assert self._solver is not None
        listed, place, decision = self._listed, cut.place, self._solver.decide(cut, limits)
        listed.bounds[place] = max(int(listed.bounds[place]), decision.least)
        if decision.given_up:
            listed.note(place, GIVEN_UP, cut.most + 1)
        return decision.found

    def _decide_left(self, limits: Limits) -> None:
        """Decide whether those that are left have less than the target, one after the other, until one has: those first whose
        operations have the least time to move in, which have the fewest states."""
        each = replace(limits, workers=max(limits.threads // max(len(self._left), 1), 1))
        waiting = iter(sorted(self._left, key=lambda cut: int((cut.windows.late - cut.windows.early).sum())))

        def decide_next(_: int) -> None:
            while not limits.clock.over and (cut := next(waiting, None)) is not None and cut.most < self._found:
                found = self._decide(cut, each) if self._decides(cut) else None
                with self._lock:
                    self._found = min(self._found, found or self._found)

        in_threads(decide_next, limits)


def times_on(ends: IntArray, many: ManyCuts, reasons: Reasons, scale: int) -> IntArray:
    """What families take on some cuts, ``[cut, 0, family]``, and what is before and behind them, in the ticks of ``many``.

    ``scale``: ticks there in one of the reasons.
    """
    families = reasons.graph.families
    kinds = (Kind.I if family.kind == Kind.B else Kind(family.kind) for family in families)
    own = [Way.of({Part(kind, family.stage): 1}) for kind, family in zip(kinds, families, strict=True)]
    ways = [many.row(way, scale) for side in (own, *reasons.margins) for way in side]
    return many.of_ways(ends, ways).reshape(len(ends), 3, len(families))
