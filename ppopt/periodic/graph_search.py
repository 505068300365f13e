"""What the questions of modulo scheduling share: those of all graphs, and those of one."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeAlias

from ppopt.clock import Limits
from ppopt.constraints import FamilyGraph
from ppopt.periodic.epilogue import reversed_periodic, shortened_by_list_scheduling
from ppopt.periodic.kernel_neighbourhoods import Improving
from ppopt.periodic.periodic_schedule import PeriodicSchedule, microbatches_per_route
from ppopt.periodic.tuning import ModuloTuning
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.solvers.outcome import Progress


@dataclass(frozen=True)
class Asked:
    """A question, its answer, and how long that took."""

    question: str
    answer: str
    seconds: float


@dataclass(frozen=True)
class Found:
    """What an earlier search of the pipeline has found, to go on from."""

    best: PeriodicSchedule | None = None
    least_unrolled: PeriodicSchedule | None = None
    """Of the schedules with the least time per microbatch, the one with the smallest unroll factor."""


class InVain:
    """Questions that have found nothing, and for how many seconds each was asked; without end where it is refuted."""

    def __init__(self) -> None:
        self._seconds: dict[Hashable, float] = {}

    def refuted(self, question: Hashable) -> bool:
        """Whether there is nothing to be found."""
        return self._seconds.get(question) == math.inf

    def asked(self, question: Hashable, seconds: float) -> bool:
        """Whether it was asked for as long as that, or is refuted."""
        return self._seconds.get(question, 0.0) >= seconds

    def note(self, question: Hashable, seconds: float, *, refuted: bool) -> None:
        """Note that it has found nothing in that time."""
        self._seconds[question] = math.inf if refuted else max(seconds, self._seconds.get(question, 0.0))


@dataclass
class Progressed:
    """How far searches of one graph have come, so that a later one goes on from there."""

    improving: dict[int, Improving] = field(default_factory=dict)
    """By unroll factor, the kernels that are made better."""
    in_vain: InVain = field(default_factory=InVain)
    """Questions about periods and makespans."""
    seed: int = 1
    """The next seed of placing kernels, above that of the search."""


Grown: TypeAlias = dict[FamilyGraph, Progressed]
"""How far searches of a pipeline have come, by graph."""


class SharedState:
    """What is known of all graphs of a pipeline, and what was asked."""

    def __init__(
        self,
        pipeline: Pipeline,
        lower: int,
        limits: Limits,
        tuning: ModuloTuning,
        upper: int | None,
        known: Found,
        example: Schedule | None,
        progress: Progress | None,
        grown: Grown,
    ) -> None:
        self.pipeline, self.lower, self.limits, self.tuning, self.progress = pipeline, lower, limits, tuning, progress
        self.known, self.example, self.grown = known, example, grown
        self.counts = microbatches_per_route(pipeline)
        self.value = upper
        """The best makespan, found or given."""
        self.improvement: PeriodicSchedule | None = None
        """The best schedule, if it is better than the makespan that was given."""
        self.found = Found()
        """The best of all graphs, better or not."""
        self.asked: list[Asked] = []

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do, or no time."""
        met = self.value is not None and self.value <= self.lower
        gap = self.value is not None and self.value - self.lower <= self.limits.gap * self.value
        return met or gap or self.limits.clock.over

    def note_best_of_graph(
        self, best: PeriodicSchedule, least_unrolled: PeriodicSchedule | None, period_bounds: dict[int, int]
    ) -> None:
        """Note what a graph has given, if it is better than what another one has."""
        value, known = (None if p is None else p.makespan_for(self.counts) for p in (best, self.found.best))
        if self.found.best is None or (value is not None and (known is None or value < known)):
            self.found = Found(replace(best, period_bounds=tuple(period_bounds.items())), least_unrolled)

    def offer(self, periodic: PeriodicSchedule) -> str:
        """Keep it if it is the best so far; what to say of it."""
        value = periodic.makespan_for(self.counts)
        if value is None:
            return "found, for other numbers of microbatches"
        if self.value is None or value < self.value:
            self.improvement, self.value = periodic, value
            if self.progress is not None:
                self.progress(value, self.lower)
        return f"makespan {self.pipeline.time(value)}"

    @contextmanager
    def asking(self, question: str) -> Iterator[list[str]]:
        """Note a question; its answer is what is put in the list."""
        begun, answer = time.monotonic(), list[str]()
        yield answer
        self.asked.append(Asked(question, ", ".join(answer), time.monotonic() - begun))


class GraphSearch:
    """What is known of one graph, and the time for it."""

    def __init__(self, shared: SharedState, graph: FamilyGraph, limits: Limits) -> None:
        self.shared, self.graph, self.limits, self.tuning = shared, graph, limits, shared.tuning
        known = (shared.known.best, shared.known.least_unrolled)
        self.best, self.least_unrolled = (one if one is not None and one.graph == graph else None for one in known)
        """As in :class:`Found`; questions about the least unrolled one are the easiest."""
        shortest = min((time for time in graph.duration if time), default=1)
        self.progressed = shared.grown.setdefault(graph, Progressed())
        self.grid = shortest if shortest > self.tuning.coarse_steps else 1
        """Ticks of the grid on which orders are sought too."""
        self.chance = random.Random(limits.seed)
        self.reversed_graph = graph.reversed()

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
        return self.shared.done or self.limits.clock.over

    def offer(self, periodic: PeriodicSchedule) -> str:
        """Keep it if it is this graph's best, and if it is the best of all; what to say of it."""
        value, best = (None if p is None else p.makespan_for(self.shared.counts) for p in (periodic, self.best))
        if best is None or (value is not None and value < best):
            self.best = periodic
        if self.least_unrolled is None or _pace(periodic) < _pace(self.least_unrolled):
            self.least_unrolled = periodic
        return self.shared.offer(periodic)

    def with_shorter_ends(self, periodic: PeriodicSchedule) -> PeriodicSchedule:
        """Epilogue and prologue made shorter by list scheduling alone, in a few variations."""
        trials = self.tuning.variations
        after = shortened_by_list_scheduling(periodic, self.limits.clock, trials=trials, chance=self.chance)
        backwards = reversed_periodic(after, self.reversed_graph)
        before = shortened_by_list_scheduling(backwards, self.limits.clock, trials=trials, chance=self.chance)
        self.limits.clock.charge(2 * trials * sum(map(len, periodic.start)) * self.tuning.operation_seconds)
        return reversed_periodic(before, self.graph)


def _pace(periodic: PeriodicSchedule) -> tuple[Fraction, int]:
    """The time per microbatch, then the unroll factor."""
    return Fraction(periodic.period, periodic.unroll), periodic.unroll
