"""List schedules whose microbatches do not enter as soon as they can, but at a pace; the best pace is searched for.

Where a device holds several stages and memory is tight, microbatches that enter early fill it with what later stages need, and
all of them wait. How many may be under way, how far apart they enter, and whether alone or in groups, decides far more about a
schedule than which operation a device takes first. No choice is best everywhere, but a list schedule takes little time: many
are tried, half of them at random, half close to the best so far.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ppopt.constraints import Word, always_split, rules_of, splitting_is_free
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Schedule
from ppopt.timing.greedy import PRIORITIES, Jobs, in_flight, run_jobs, several_stages
from ppopt.timing.timed import time_order

_RULES = ("oldest-backward-first", "oldest-first", "backward-first")
_KEPT = 5
"""How many of the best paces others are made from."""
_HELD = 8
"""How many sets of jobs are held, each for a number of microbatches under way."""
_LEAST, _SPREAD = 0.8, 0.25
"""Gaps between entries, relative to what the busiest device works for a microbatch: the least tried, and the mean above it."""
_SHIFTS = (0.005, 0.03)
"""By how much a gap is changed (standard deviations)."""


class Pace(NamedTuple):
    """How microbatches enter, and what a device takes first."""

    rule: str
    patient: bool
    most: int
    """So many are under way at most; 0: as many as memory holds."""
    gap: float
    """Between entries, relative to what the busiest device works for a microbatch."""
    ahead: int
    """How many enter before the pace begins."""
    group: int
    """So many enter at a time."""
    split: bool
    """Whether every backward is split, where that is a choice."""


def each_paced(pipeline: Pipeline, objective: str, seed: int = 0) -> Iterator[tuple[str, Schedule]]:
    """List schedules at one pace after the other, within the memory limit, without end.

    ``objective``: what the best of them are best in. The same ``seed`` gives the same ones.
    """
    draw = _Draw(pipeline, seed)
    jobs = lru_cache(_HELD)(lambda most, split: Jobs(pipeline, _words(pipeline, most, split), links=True))
    best: dict[Pace, int] = {}
    while True:
        pace = draw.other(draw.chance.choice(sorted(best))) if len(best) == _KEPT and draw.chance.random() < 0.5 else draw.new()
        if pace in best:
            continue
        schedule = _paced(pipeline, jobs(pace.most, pace.split), pace)
        best[pace] = schedule.objective(objective)
        if len(best) > _KEPT:
            del best[max(best, key=lambda of: (best[of], of))]
        yield _label(pipeline, pace), schedule


def _words(pipeline: Pipeline, most: int, split: bool) -> tuple[Word, ...]:
    return (
        *rules_of(pipeline),
        *(in_flight(pipeline, most) if most else ()),
        *(always_split(pipeline) if split else ()),
    )


def _paced(pipeline: Pipeline, jobs: Jobs, pace: Pace) -> Schedule:
    features = jobs.features
    entry = features.turn * len(pipeline.routes) + features.route
    late = np.maximum(entry // pace.group * pace.group - pace.ahead, 0) * (pace.gap * _work(pipeline))
    release: IntArray = np.where((features.kind == Kind.F) & (features.stage == 0), late, 0).astype(np.int64)
    return time_order(pipeline, run_jobs(jobs, PRIORITIES[pace.rule](jobs), patient=pace.patient, release=release))


def _work(pipeline: Pipeline) -> float:
    """Ticks that the busiest device works for a microbatch, on average."""
    return int(pipeline.work.max()) / pipeline.microbatches


def _label(pipeline: Pipeline, pace: Pace) -> str:
    gap = f"{pipeline.time(round(pace.gap * pace.group * _work(pipeline))):.6g}"
    parts = [f"greedy {pace.rule}", "patient" if pace.patient else "", f"{pace.most} in flight" if pace.most else ""]
    parts += ["split" if pace.split else "", f"{pace.group} per {gap}", f"{pace.ahead} ahead" if pace.ahead else ""]
    return ", ".join(part for part in parts if part)


class _Draw:
    """Paces at random."""

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self.chance = random.Random(seed)
        self.devices = pipeline.devices
        self.splits = (False, True) if pipeline.costs.split and not splitting_is_free(pipeline) else (False,)
        self.crowds = several_stages(pipeline) and pipeline.amounts.limit is not None
        gradient = Kind.I if pipeline.costs.split else Kind.B
        way = int(pipeline.ticks.duration[:, [Kind.F, gradient]].sum(axis=(1, 2)).max())
        way += 2 * pipeline.stages * int(pipeline.ticks.lag.max())
        self.under_way = min(pipeline.microbatches, 1 + way // max(1, round(_work(pipeline))))
        """About how many microbatches are under way at full speed."""

    def new(self) -> Pace:
        """Any."""
        chance, devices = self.chance, self.devices
        return Pace(
            chance.choice(_RULES),
            chance.random() < 0.7,
            self._most(),
            _LEAST + chance.expovariate(1 / _SPREAD) if chance.random() < 0.9 else 0.0,
            chance.choice((0, 0, 1, 2, 3, self.under_way // 4, self.under_way // 2)),
            max(1, chance.choice((1, 1, 1, 1, 2, 3, 4, devices // 2, devices))),
            chance.choice(self.splits),
        )

    def _most(self) -> int:
        least = max(1, self.under_way // 2)
        return self.chance.randint(least, 3 * self.under_way) if self.crowds and self.chance.random() < 0.9 else 0

    def other(self, pace: Pace) -> Pace:
        """One that differs from ``pace`` in one or two respects."""
        chance = self.chance
        for _ in range(chance.choice((1, 1, 2))):
            respect = chance.choice(("most", "gap", "gap", "gap", "ahead", "group", "patient", "rule", "split"))
            if respect == "most" and self.crowds:
                pace = pace._replace(most=max(1, pace.most + chance.choice((-2, -1, 1, 2))) if pace.most else self._most())
            elif respect == "gap":
                pace = pace._replace(gap=max(0.0, pace.gap + chance.gauss(0, chance.choice(_SHIFTS))))
            elif respect == "ahead":
                pace = pace._replace(ahead=max(0, pace.ahead + chance.choice((-1, 1))))
            elif respect == "group":
                pace = pace._replace(group=max(1, pace.group + chance.choice((-1, 1))))
            elif respect == "patient":
                pace = pace._replace(patient=not pace.patient)
            elif respect == "rule":
                pace = pace._replace(rule=chance.choice(_RULES))
            elif respect == "split":
                pace = pace._replace(split=chance.choice(self.splits))
        return pace
