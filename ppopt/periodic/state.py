"""Repetition: what its questions share, of all graphs and of one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction

from ppopt.clock import Limits
from ppopt.constraints import FamilyGraph
from ppopt.periodic.ends import SECONDS, rearranged, reversed_periodic
from ppopt.periodic.periodic import Periodic, counts_of
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.solvers.outcome import Progress

_FINE = 8
"""With shortest operations of more ticks than this, orders are sought on a coarser grid too."""


@dataclass(frozen=True)
class Step:
    """What was asked, what came of it, and how long it took."""

    question: str
    answer: str
    seconds: float


class State:
    """The best of all graphs, and what was asked."""

    def __init__(
        self,
        pipeline: Pipeline,
        lower: int,
        limits: Limits,
        upper: int | None,
        start: tuple[Periodic | None, Periodic | None],
        like: Schedule | None,
        progress: Progress | None,
    ) -> None:
        self.pipeline, self.lower, self.start, self.like, self.progress = pipeline, lower, start, like, progress
        self.counts = counts_of(pipeline)
        self.limits = limits
        self.best: Periodic | None = None
        self.known: Periodic | None = None
        self.base: Periodic | None = None
        self.value = upper
        self.steps: list[Step] = []

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do, or no time."""
        met = self.value is not None and self.value <= self.lower
        gap = self.value is not None and self.value - self.lower <= self.limits.gap * self.value
        return met or gap or self.limits.clock.over

    def know(self, periodic: Periodic, base: Periodic | None, shown: dict[int, int]) -> None:
        """Note a graph's best, if it is better than that of another one, and what is shown of the graph's periods."""
        value, known = (None if p is None else p.makespan_for(self.counts) for p in (periodic, self.known))
        if self.known is None or (value is not None and (known is None or value < known)):
            self.known, self.base = replace(periodic, shown=tuple(shown.items())), base

    def keep(self, periodic: Periodic) -> str:
        """Take it as the best if it is; and what to say of it."""
        value = periodic.makespan_for(self.counts)
        if value is None:
            return "found, for other numbers of microbatches"
        if self.value is None or value < self.value:
            self.best, self.value = periodic, value
            if self.progress is not None:
                self.progress(value, self.lower)
        return f"makespan {self.pipeline.time(value)}"

    @contextmanager
    def step(self, question: str) -> Iterator[list[str]]:
        """Note a step; its answer is what is put in the list."""
        begun, answer = time.monotonic(), list[str]()
        yield answer
        self.steps.append(Step(question, ", ".join(answer), time.monotonic() - begun))


class OneGraph:
    """The best of one graph, and the time for it."""

    def __init__(self, all_: State, graph: FamilyGraph, limits: Limits) -> None:
        self.all, self.graph, self.limits = all_, graph, limits
        self.own, self.base = (one if one is not None and one.graph == graph else None for one in all_.start)
        """The best, and of the shortest period that with the fewest microbatches: questions about it are the easiest."""
        shortest = min((time for time in graph.duration if time), default=1)
        self.grid = shortest if shortest > _FINE else 1
        """Ticks of the grid on which orders are sought too."""
        self.chance = random.Random(limits.seed)
        self.turned = graph.reversed()

    @property
    def left(self) -> float:
        """Seconds."""
        return self.limits.clock.left

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """While this lasts, no more than ``seconds`` are left."""
        limits, self.limits = self.limits, self.limits.slice(seconds)
        try:
            yield
        finally:
            self.limits = limits

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do, or no time."""
        return self.all.done or self.limits.clock.over

    def keep(self, periodic: Periodic) -> str:
        """Take it as this graph's best if it is, and as the best of all if it is that; and what to say of it."""
        value, own = (None if p is None else p.makespan_for(self.all.counts) for p in (periodic, self.own))
        if own is None or (value is not None and value < own):
            self.own = periodic
        pace = (Fraction(periodic.period, periodic.step), periodic.step)
        if self.base is None or pace < (Fraction(self.base.period, self.base.step), self.base.step):
            self.base = periodic
        return self.all.keep(periodic)

    def trimmed(self, seed: Periodic, trials: int) -> Periodic:
        """End and beginning by list scheduling alone."""
        end = rearranged(seed, trials=trials, chance=self.chance)
        begin = rearranged(reversed_periodic(end, self.turned), trials=trials, chance=self.chance)
        self.limits.clock.charge(2 * trials * sum(map(len, seed.start)) * SECONDS)
        return reversed_periodic(begin, self.graph)
