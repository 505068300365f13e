"""What the best walks of a tabu search came by, and where the next one begins: between two of them (path relinking; Peng, Lü and
Cheng, "A tabu search/path relinking algorithm to solve the job shop scheduling problem", 2015)."""

from __future__ import annotations

from bisect import bisect
from itertools import pairwise
from random import Random
from typing import NamedTuple

import numpy as np

from ppopt.pipeline import IntArray
from ppopt.tabu.jobs import HABITS, Jobs
from ppopt.tabu.paths import NEVER
from ppopt.tabu.walk import Walk

_PART = 0.2, 0.5
"""Of the way to the other one: so much at least and at most. Not measured."""


class Found(NamedTuple):
    """The best sequence of a walk, its value, and whether the walk came to its end."""

    value: int
    sequence: IntArray
    over: bool


class Kept:
    """What the best walks found, the least value first."""

    def __init__(self, jobs: Jobs, seed: int) -> None:
        self.walks: list[Found] = []
        self._jobs, self._chance = jobs, Random(seed)

    @property
    def best(self) -> Found:
        """The one of the least value."""
        return self.walks[0]

    def keep(self, walk: Walk) -> None:
        """Keep what a walk found, where it is among the best."""
        if walk.value == NEVER:
            return
        self.walks = [found for found in self.walks if not np.array_equal(found.sequence, walk.best)]
        self.walks.append(Found(walk.value, walk.best.copy(), walk.over))
        self.walks.sort(key=lambda found: found.value)
        del self.walks[HABITS.kept :]

    def send(self, walk: Walk) -> None:
        """Let a walk begin: where the best one was cut short; else between two of them, or near one."""
        if not self.best.over:
            walk.begin(self.best.sequence)
            self.walks[0] = self.best._replace(over=True)
            return
        if len(self.walks) == HABITS.kept:
            one, other = self._chance.sample(self.walks, 2)
            guide = np.empty_like(other.sequence)
            guide[other.sequence] = np.arange(len(guide))
            swaps = self.swaps(one.sequence, guide)
            if swaps >= HABITS.apart:
                walk.begin(one.sequence, int(swaps * self._chance.uniform(*_PART)), guide)
                return
        walk.begin(self._chance.choice(self.walks).sequence, HABITS.random)

    def swaps(self, sequence: IntArray, guide: IntArray) -> int:
        """How many swaps of neighbours lead from a sequence to that of a guide."""
        total = 0
        for a, b in pairwise(self._jobs.begin.tolist()):
            behind: list[int] = []
            for place in guide[sequence[a:b]].tolist():
                at = bisect(behind, place)
                total += len(behind) - at
                behind.insert(at, place)
        return total
