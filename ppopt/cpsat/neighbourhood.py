"""Large neighbourhood search: what runs within a window of time is arranged anew by CP-SAT, then within another.

Shaw, "Using constraint programming and local search methods to solve vehicle routing problems" (CP 1998). What comes before the
window and behind it keeps its order, so all that counts of it are the longest paths through it: the model has the operations
of the window alone, whatever the size of the pipeline is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from ppopt.clock import Limits
from ppopt.constraints import rules_of, splitting_is_free
from ppopt.cpsat import engine
from ppopt.cpsat.around import Around
from ppopt.cpsat.running import Known
from ppopt.cpsat.tuning import NeighbourhoodTuning
from ppopt.cpsat.window import Window
from ppopt.interrupt import check
from ppopt.op import Kind
from ppopt.schedule import Objective, Schedule, durations
from ppopt.solvers.outcome import Outcome, Progress, timed_with_copies
from ppopt.timing import CyclicOrder
from ppopt.timing.copies import with_spare


@dataclass
class Grown:
    """How far a search has come, so that another one goes on where it stopped: with windows as large as those that were searched
    through, and with others."""

    size: dict[bool, float] = field(default_factory=dict)
    """Operations in a window, by whether begins may move."""
    patience: float = 0.0
    """Seconds for one window."""
    chance: random.Random | None = None
    """Where the next windows are."""


def improved(
    schedule: Schedule,
    *,
    objective: Objective,
    lower: int,
    limits: Limits,
    tuning: NeighbourhoodTuning,
    progress: Progress | None = None,
    grown: Grown | None = None,
) -> Outcome:
    """The best schedule found from this one on, with its pairs and its ways to run each backward; none where none is better.

    ``lower``: a proved bound in ticks, where the search is over. As many windows are searched at a time as there are workers.
    Ctrl-C stops it and is noted in the outcome. For pipelines whose devices exchange nothing between their operations. Where
    activations may be on the host it is for makespans, and the windows arrange the copies that the schedule has, in turn with all
    besides for which its times leave room. ``grown``: how far a search of the same pipeline has come before; it is brought up to
    date. Where everything was in a window, it begins anew.
    """
    first = in_two(schedule) if schedule.pipeline.engines else schedule
    search = _Search(first, objective, lower, limits, tuning, grown or Grown())
    try:
        search.run(progress)
    except KeyboardInterrupt:
        limits.clock.interrupt()
    best = search.best if search.value < schedule.objective(objective) else None
    return Outcome(best, lower, interrupted=limits.clock.interrupted)


def in_two(schedule: Schedule) -> Schedule:
    """A schedule with copies to the host, no worse, its backwards split where that is free: a window keeps them as they are."""
    pipeline = schedule.pipeline
    if not splitting_is_free(pipeline):
        return schedule
    numbers = np.concatenate((*schedule.order.rows, *schedule.transfers.rows, *schedule.copies.rows))
    starts = np.concatenate((*schedule.start, *schedule.transfers.start, *schedule.copies.start))
    slots = pipeline.stages * pipeline.microbatches
    whole = (numbers >= Kind.B * slots) & (numbers < (Kind.B + 1) * slots)
    inputs, weights = (numbers[whole] + (kind - Kind.B) * slots for kind in (Kind.I, Kind.W))
    numbers = np.concatenate((numbers[~whole], inputs, weights))
    starts = np.concatenate((starts[~whole], starts[whole], starts[whole] + durations(pipeline, inputs)))
    try:
        found = timed_with_copies(pipeline, rules_of(pipeline), numbers, starts - starts.min(), "makespan", 1, 1)
    except CyclicOrder:
        return schedule
    return found if found.makespan <= schedule.makespan else schedule


class _Search:
    def __init__(
        self, schedule: Schedule, objective: Objective, lower: int, limits: Limits, tuning: NeighbourhoodTuning, grown: Grown
    ) -> None:
        self.best, self.objective, self.lower, self.limits = schedule, objective, lower, limits
        self.value = schedule.objective(objective)
        self.tuning, self.grown = tuning, grown
        self.chance = grown.chance = grown.chance or random.Random(limits.seed)
        if not grown.size:
            self.begin()
        self.begins_move = False

    def begin(self) -> None:
        """With small windows."""
        self.grown.size = {False: float(self.tuning.first_size), True: float(self.tuning.first_size_where_begins_move)}
        self.grown.patience = self.tuning.patience

    def run(self, progress: Progress | None) -> None:
        """Until the bound is met, everything was in a window, or the time is over."""
        arounds: list[Around] = []
        while self.value > self.lower and not self.limits.clock.over:
            check()
            if not arounds:
                bests = [self.best] if not self.best.pipeline.engines else [with_spare(self.best), self.best]
                arounds = [Around(best, self.objective) for best in bests]
            arounds = [*arounds[1:], arounds[0]]
            around = arounds[-1]
            if self.round(around):
                arounds = []
                if progress is not None:
                    progress(self.value, self.lower)
            elif self.grown.size[self.objective == "span"] >= 2 * len(around.start):
                self.begin()
                return

    def round(self, around: Around) -> bool:
        """Search one window per worker; whether the best got better."""
        if self.objective == "span":
            self.begins_move = self.grown.size[False] >= 2 * len(around.start) or self.chance.random() < self.tuning.begins_move
        windows = [Window(around, *self.span(around), begins_move=self.begins_move) for _ in range(self.limits.threads)]
        preset = engine.SPANS if self.objective == "span" else engine.DECIDING
        seeds = [self.chance.randrange(2**31) for _ in windows]
        answers = engine.at_once([w.model for w in windows], self.limits, preset, seconds=self.grown.patience, seeds=seeds)
        value = self.value
        for window, answer in zip(windows, answers, strict=True):
            factor = self.tuning.growth if answer.known is Known.BEST else 1 / self.tuning.growth
            self.grown.size[self.begins_move] = max(1.0, self.grown.size[self.begins_move] * factor)
            if answer.found and answer.objective < value:
                self.keep(window.schedule(answer))
        better = self.value < value
        self.grown.patience = self.tuning.patience_after(self.grown.patience, better)
        return better

    def keep(self, schedule: Schedule | None) -> None:
        """Keep it if it is the best."""
        if schedule is not None and schedule.within_memory and schedule.objective(self.objective) < self.value:
            self.best, self.value = schedule, schedule.objective(self.objective)

    def span(self, around: Around) -> tuple[int, int]:
        """Since when and until when operations start that are in a window of about the current size."""
        times, size = around.times, round(self.grown.size[self.begins_move])
        at = self.chance.randrange(-size // 2, max(1, len(times) - size // 2))
        since = times[at] if at > 0 else times[0]
        return since, times[at + size] if at + size < len(times) else times[-1] + 1
