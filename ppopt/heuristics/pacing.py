"""List schedules whose microbatches do not enter as soon as they can, but at a pace; the best pace is searched for.

Where a device holds several stages and memory is tight, microbatches that enter early fill it with what later stages need, and
all of them wait. How many may be in flight, how far apart they enter, and whether alone or in groups, decides far more about a
schedule than which operation a device takes first. No choice is best everywhere, but a list schedule takes little time: many
are tried, half of them at random, half close to the best so far.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ppopt.constraints import always_split, rules_of, splitting_is_free
from ppopt.heuristics.baselines import may_get_stuck
from ppopt.heuristics.in_flight import at_most_in_flight, may_crowd
from ppopt.heuristics.jobs import Jobs
from ppopt.heuristics.list_scheduling import run_jobs
from ppopt.heuristics.priorities import PRIORITIES
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Schedule
from ppopt.timing import time_order


class Pace(NamedTuple):
    """How microbatches enter, and what a device takes first."""

    rule: str
    """The name of a priority rule."""
    patient: bool
    """Whether devices are patient (:func:`~ppopt.heuristics.list_scheduling.list_schedule`)."""
    most: int
    """How many microbatches of a route are in flight at most; 0: as many as memory holds."""
    gap: float
    """How far apart microbatches enter, relative to what the busiest device works for a microbatch."""
    ahead: int
    """How many enter before the pace begins."""
    group: int
    """How many enter at a time."""
    split: bool
    """Whether every backward is split, where that is a choice."""

    def schedule(self, pipeline: Pipeline, jobs: Jobs) -> Schedule:
        """The list schedule at this pace. ``jobs``: those of :meth:`jobs`."""
        features = jobs.features
        entry = features.turn * len(pipeline.routes) + features.route
        late = np.maximum(entry // self.group * self.group - self.ahead, 0) * (self.gap * _work(pipeline))
        release: IntArray = np.where((features.kind == Kind.F) & (features.stage == 0), late, 0).astype(np.int64)
        return time_order(pipeline, run_jobs(jobs, PRIORITIES[self.rule](jobs), patient=self.patient, release=release))

    def name(self, pipeline: Pipeline) -> str:
        """What it is called; the gap is that between groups, in the pipeline's unit of time."""
        gap = f"{pipeline.time(round(self.gap * self.group * _work(pipeline))):.6g}"
        parts = [f"greedy {self.rule}", "patient" if self.patient else "", f"{self.most} in flight" if self.most else ""]
        parts += ["split" if self.split else "", f"{self.group} per {gap}", f"{self.ahead} ahead" if self.ahead else ""]
        return ", ".join(part for part in parts if part)


def each_paced(pipeline: Pipeline, objective: str, seed: int = 0) -> Iterator[tuple[str, Schedule]]:
    """A name and a list schedule at one pace after the other, within the memory limit, without end; or up to one that gets stuck
    (:func:`~ppopt.heuristics.baselines.may_get_stuck`).

    ``objective``: ``makespan`` or ``span``, what the best paces are best in. The same ``seed`` gives the same schedules.
    """
    draw = _Draw(pipeline, seed)
    kept = 5  # the best paces, which are changed into others
    jobs_of = lru_cache(maxsize=8)(lambda most, split: _jobs(pipeline, most, split))  # each is large
    best: dict[Pace, int] = {}
    while True:
        pace = draw.near(draw.chance.choice(sorted(best))) if len(best) == kept and draw.chance.random() < 0.5 else draw.any()
        if pace in best:
            continue
        try:
            schedule = pace.schedule(pipeline, jobs_of(pace.most, pace.split))
        except may_get_stuck(pipeline):
            return
        best[pace] = schedule.objective(objective)
        if len(best) > kept:
            del best[max(best, key=lambda of: (best[of], of))]
        yield pace.name(pipeline), schedule


def _jobs(pipeline: Pipeline, most: int, split: bool) -> Jobs:
    words = [*rules_of(pipeline)]
    words += at_most_in_flight(pipeline, most) if most else ()
    words += always_split(pipeline) if split else ()
    return Jobs(pipeline, words, links=True)


def _work(pipeline: Pipeline) -> float:
    """Ticks that the busiest device works for a microbatch, on average."""
    return int(pipeline.work.max()) / pipeline.microbatches


class _Draw:
    """Paces by chance, those most often that seemed to do best; the shares have not been measured one by one."""

    _RULES = ("oldest-backward-first", "oldest-first", "backward-first")

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self.chance = random.Random(seed)
        self._devices = pipeline.devices
        self._splits = (False, True) if pipeline.costs.split and not splitting_is_free(pipeline) else (False,)
        self._may_crowd = may_crowd(pipeline)
        gradient = Kind.I if pipeline.costs.split else Kind.B
        way = int(pipeline.ticks.duration[:, [Kind.F, gradient]].sum(axis=(1, 2)).max())
        way += 2 * pipeline.stages * int(pipeline.ticks.lag.max())
        self._in_flight = min(pipeline.microbatches, 1 + way // max(1, round(_work(pipeline))))
        """About how many microbatches are in flight at full speed."""

    def any(self) -> Pace:
        """A pace of any kind."""
        chance, devices = self.chance, self._devices
        return Pace(
            rule=chance.choice(self._RULES),
            patient=chance.random() < 0.7,
            most=self._most(),
            gap=0.8 + chance.expovariate(1 / 0.25) if chance.random() < 0.9 else 0.0,  # 1: as fast as the busiest device works
            ahead=chance.choice((0, 0, 1, 2, 3, self._in_flight // 4, self._in_flight // 2)),
            group=max(1, chance.choice((1, 1, 1, 1, 2, 3, 4, devices // 2, devices))),
            split=chance.choice(self._splits),
        )

    def near(self, pace: Pace) -> Pace:
        """One that differs from ``pace`` in one or two respects."""
        chance = self.chance
        for _ in range(chance.choice((1, 1, 2))):
            respect = chance.choice(("most", "gap", "gap", "gap", "ahead", "group", "patient", "rule", "split"))
            if respect == "most" and self._may_crowd:
                pace = pace._replace(most=max(1, pace.most + chance.choice((-2, -1, 1, 2))) if pace.most else self._most())
            elif respect == "gap":  # a fine step, or a coarse one
                pace = pace._replace(gap=max(0.0, pace.gap + chance.gauss(0, chance.choice((0.005, 0.03)))))
            elif respect == "ahead":
                pace = pace._replace(ahead=max(0, pace.ahead + chance.choice((-1, 1))))
            elif respect == "group":
                pace = pace._replace(group=max(1, pace.group + chance.choice((-1, 1))))
            elif respect == "patient":
                pace = pace._replace(patient=not pace.patient)
            elif respect == "rule":
                pace = pace._replace(rule=chance.choice(self._RULES))
            elif respect == "split":
                pace = pace._replace(split=chance.choice(self._splits))
        return pace

    def _most(self) -> int:
        least = max(1, self._in_flight // 2)
        return self.chance.randint(least, 3 * self._in_flight) if self._may_crowd and self.chance.random() < 0.9 else 0
