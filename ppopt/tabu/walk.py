"""One walk of the tabu search: from a sequence on, move after move."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ppopt.pipeline import IntArray
from ppopt.schedule import Objective, Order, Schedule, halves, of_stages
from ppopt.tabu.jobs import HABITS, Jobs, Plan, Work
from ppopt.tabu.loop import GOES_ON, arrange, search
from ppopt.tabu.paths import BEST, EXCEEDS, EXCESS, GUIDED, KICKS, LOOKED, NEVER, SET, SINCE
from ppopt.timing.links import Network, in_turn
from ppopt.timing.paths import NEVER as NO_PATH
from ppopt.timing.paths import best_begins, shortest_spans

_LOOK = 1e-7, 2.5e-8
"""Deterministic seconds of a place that is looked at, and of a time that is set. Measured on 6 pipelines: 12 to 95 us for a
move."""
_NODE = 1e-6
"""Deterministic seconds for an operation to begin anew. Measured: half of that."""
_CHUNK = 0.05
"""Seconds between two looks at the clock."""
_FIRST = 20
"""Moves before what they take is known."""


class Walk:
    """A plan, moves from it on, and the best that they came by. ``over``: it came to its end."""

    def __init__(self, network: Network, jobs: Jobs, objective: Objective, seed: int, slower: int = 1) -> None:
        self.network, self.jobs, self.objective, self.slower = network, jobs, objective, slower
        self.plan, self.work = Plan.empty(jobs), Work.empty(jobs, seed)
        ticks, first = network.pipeline.ticks, network.number[jobs.begin[:-1]]
        self._lead, self._rest = (of_stages(network.pipeline, first, table) for table in (ticks.lead, ticks.tail))
        """By machine what a device does before and after its operations."""
        taken = self.network.duration.sum() + self.network.lag.sum() + self._lead.sum() + self._rest.sum()
        self.largest = 2 * int(taken)
        self.plan.release[:], self.plan.rest[:] = self._lead, self._rest
        self.moves, self.over = _FIRST, False
        self._exceeds = seed % 2 == 0
        if objective == "span":
            self.plan.rest[self.jobs.devices :] = -NEVER

    @property
    def value(self) -> int:
        """The best one since the walk began."""
        return int(self.work.counts[BEST])

    @property
    def best(self) -> IntArray:
        """Its sequence."""
        return self.work.best

    def begin(self, sequence: IntArray, moves: int = 0, guide: IntArray | None = None) -> None:
        """Begin from this sequence, with so many random moves, towards another one (``guide``: by node its place there).

        Every second time memory may be exceeded. Measured on 11 pipelines, 1.2 s each: always, values of those with much memory
        get up to 0.8 % larger; never, others get up to 2 % larger.
        """
        count = self.work.counts
        self._exceeds = not self._exceeds
        count[EXCEEDS] = self._exceeds
        count[BEST], count[SINCE], count[KICKS], count[GUIDED] = NEVER, 0, moves, guide is not None
        self.work.until[:] = 0
        if guide is not None:
            self.work.guide[:] = guide
        self.over = False
        self._arrange(sequence)

    def go_on(self, lower: int) -> float:
        """Make some moves, none from a value of ``lower`` on; in how many deterministic seconds."""
        count, best = self.work.counts, self.value
        before = count[[LOOKED, SET]]
        outcome = search(self.moves, self.largest, self.moves, lower, HABITS, self.jobs, self.plan, self.work)
        seconds = float((count[[LOOKED, SET]] - before) @ _LOOK) + _NODE * self.jobs.nodes
        each = self.slower * seconds / self.moves
        self.moves = max(1, min(2 * self.moves, int(_CHUNK / each), HABITS.vain))
        self.over = outcome != GOES_ON
        if not self.over:
            self._sort()
            if self.objective == "span":
                self._arrange(self.plan.sequence if self.value >= best else self.work.best)
        return seconds

    def schedule(self, sequence: IntArray) -> Schedule:
        """That of a sequence."""
        pipeline = self.network.pipeline
        self._arrange(sequence)
        numbers = self.network.number
        times = np.full(pipeline.index.size, np.nan)
        for half in halves(pipeline.index, numbers):
            times[half[half >= 0]] = self.plan.head[half >= 0]
        rows = tuple(numbers[sequence[a:b]] for a, b in pairwise(self.network.offsets[: pipeline.devices + 1]))
        schedule = in_turn(pipeline, Order(pipeline.index, rows), times)
        return shortest_spans(schedule) if self.objective == "span" else schedule

    def _arrange(self, sequence: IntArray) -> None:
        """Let this be the sequence, with its times, for spans in the best ones."""
        jobs, plan = self.jobs, self.plan
        plan.sequence[:] = sequence
        change, length = jobs.change[plan.sequence], np.diff(jobs.begin)
        held = change.cumsum() - change
        plan.level[:] = held - np.repeat(held[jobs.begin[:-1]], length)
        excess = plan.level + jobs.claim[plan.sequence] - np.repeat(jobs.room, length)
        self.work.counts[EXCESS] = np.maximum(excess, 0).sum()
        self._set()
        if self.objective == "span":
            devices = jobs.devices
            last = plan.sequence[jobs.begin[1 : devices + 1] - 1]
            weight = np.zeros((devices, devices), dtype=np.int64)
            lead, rest = self._lead[:devices], self._rest[:devices]
            for device, row in enumerate(weight):  # everything else begins so early that no path from it counts
                plan.release[:], plan.release[device] = -NEVER, lead[device]
                self._set()
                row[:] = np.maximum(plan.head[last] + jobs.duration[last] + rest, NO_PATH)
            begins, _ = best_begins(weight)
            plan.release[:] = -NEVER
            plan.release[:devices], plan.rest[:devices] = begins + lead, rest - begins
            self._set()
        self._sort()

    def _set(self) -> None:
        arrange(self.jobs.nodes, self.largest, self.jobs, self.plan, self.work)

    def _sort(self) -> None:
        """Let the topological order be that of the times: then what is between two operations of a machine is near them."""
        plan = self.plan
        plan.ranked[:] = plan.ranked[np.argsort(plan.head[plan.ranked], kind="stable")]
        plan.rank[plan.ranked] = np.arange(self.jobs.nodes)
