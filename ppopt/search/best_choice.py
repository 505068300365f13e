"""The best schedule of all choices of what recomputes, made better: its own choice is solved as any pipeline is.

The nodes of the tree have other times and amounts than any choice, and a second or a few each. An order that comes from one
is a start, no more. Measured on Llama-3-70B, its balanced cut in a wave of 2 on 8 devices, 32 microbatches, 30 s, with list
scheduling of the lowest options and :mod:`ppopt.search.narrowing`: within 56 GB 9597 ms instead of 11,845 ms, within 64 GB 9308
instead of 11,691 ms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from ppopt.clock import Clock
from ppopt.constraints import Word
from ppopt.pipeline import Pipeline
from ppopt.schedule import Objective, Schedule
from ppopt.search import strategies
from ppopt.search.choices import ClosedBranch
from ppopt.search.closed import ClosedSearch
from ppopt.search.near_cuts import value_of
from ppopt.search.problem import Problem
from ppopt.search.settings import Settings
from ppopt.search.whereabouts import at


class BestChoice:
    """Searches for a better schedule of the choice that the best one has.

    They may take as long as the nodes of the tree, and where they find nothing half, then a third, and so on; each in vain is
    followed by one twice as long.
    """

    def __init__(self, objective: Objective, settings: Settings, words: Collection[Word]) -> None:
        self._objective, self._settings, self._words = objective, dataclasses.replace(settings, gap=0.0), tuple(words)
        self._seconds = self._first = strategies.RECOMPUTE_ROOT * settings.seconds
        self._spent, self._in_vain = 0.0, 1
        self._branch: ClosedBranch | None = None
        """The search on the last choice."""

    def due(self, best: Schedule, others: float) -> bool:
        """Whether a search comes next, where the nodes have taken so long (``others``, in seconds). Integer programs have none:
        they begin anew each time."""
        if self._settings.solver == "ilp" or self._settled(best.pipeline):
            return False
        return self._in_vain * (self._spent + self._seconds) <= others

    def improved(self, best: Schedule, clock: Clock) -> Schedule:
        """A better schedule than ``best`` with its choice, or ``best``."""
        if self._branch is None or self._branch.pipeline != best.pipeline:
            search = ClosedSearch(Problem(best.pipeline, self._objective, self._words), self._settings)
            self._branch, self._seconds = ClosedBranch(search), self._first
            self._branch.begin(best)
        own, value = clock.slice(self._seconds), value_of(best, self._objective)
        with at("the best choice"):
            found = self._branch.go_on(own, value, None).schedule
        self._spent += own.spent
        if found is None or value_of(found, self._objective) >= value:
            self._in_vain, self._seconds = self._in_vain + 1, 2 * self._seconds
            return best
        self._in_vain = 0
        return found

    def _settled(self, pipeline: Pipeline) -> bool:
        """Whether nothing is left to be found with the choice of a pipeline."""
        branch = self._branch
        if branch is None or branch.result is None or branch.pipeline != pipeline:
            return False
        return branch.result.limit is None
