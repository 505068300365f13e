"""Tabu search: one operation after the other moves, along critical paths, whether that makes the schedule better or not.

It is how job shops are scheduled (Nowicki and Smutnicki, "A fast taboo search algorithm for the job shop problem", 1996; moves of
Balas and Vazacopoulos, "Guided local search with shifting bottleneck for job shop scheduling", 1998; Zhang and others, "A tabu
search algorithm with a new neighborhood structure for the job shop scheduling problem", 2007). A pipeline is one whose devices
have memory, too: what they hold depends on their own order alone, so that a move that would take too much is left out.

*Device spans.* Times are counted from when the devices begin, as the best times of an order have it
(:func:`ppopt.timing.paths.shortest_spans`); between two looks at these the begins stay.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from ppopt.clock import Limits
from ppopt.compiled import available, expect
from ppopt.interrupt import check
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Objective, Order, Schedule, halves
from ppopt.solvers.outcome import Outcome, Progress
from ppopt.tabu.jobs import HABITS, Jobs, Plan, Work
from ppopt.tabu.loop import BEST, GOES_ON, KICKS, LOOKED, NEVER, SET, SINCE, arrange, search
from ppopt.timing.links import Network, begun, in_turn, network_in_turn
from ppopt.timing.paths import NEVER as NO_PATH
from ppopt.timing.paths import best_begins, shortest_spans

_LOOK = 1e-7, 2.5e-8
"""Deterministic seconds of a place that is looked at, and of a time that is set. Measured on 6 pipelines: 12 to 95 us for a
move."""
_NODE = 1e-6
"""Deterministic seconds for an operation to begin anew. Measured: half of that."""
_UNCOMPILED = 100
"""How many times as long it takes without numba. Measured: 3 to 15 ms for a move."""
_CHUNK = 0.05
"""Seconds between two looks at the clock."""
_FIRST = 20
"""Moves before what they take is known."""


def unknown(pipeline: Pipeline) -> str | None:
    """What a pipeline has that is not known here; ``None``: nothing."""
    if pipeline.engines:
        return "it knows nothing of copies to the host"
    if pipeline.links.blocking and pipeline.lines:
        return "it knows nothing of transfers that block"
    if pipeline.backward_routes and pipeline.amounts.limit is not None:
        return "it knows nothing of memory that is held on another device"
    if pipeline.ticks.margins or pipeline.ticks.pauses:
        return "it knows nothing of what a device does before, between and after its operations"
    return None


def improved(
    schedule: Schedule,
    *,
    objective: Objective,
    lower: int,
    limits: Limits,
    seed: int,
    progress: Progress | None = None,
) -> Outcome:
    """The best schedule found from this one on, with its pairs and its ways to run each backward; none where none is better.

    ``lower``: a proved bound in ticks, where the search is over; so it is once it began anew often enough in vain. As many search
    at a time as there are workers, each with its own chance, and go on from the best of them. Ctrl-C stops it and is noted in the
    outcome. For pipelines of which nothing is :func:`unknown`.
    """
    if limits.clock.over:
        return Outcome(None, lower, interrupted=limits.clock.interrupted)
    expect(HABITS.patience * HABITS.vain, search)
    slower = 1 if available() or limits.clock.deterministic else _UNCOMPILED
    network, _ = network_in_turn(schedule.pipeline, schedule.order, begun(schedule))
    jobs, threads = Jobs.of(network), limits.threads if available() else 1
    walks = [Walk(network, jobs, objective, lower, seed * 1000 + n, slower) for n in range(threads)]
    best, value, in_vain = walks[0], schedule.objective(objective), 0
    if best.largest > NEVER // 4:  # paths would not fit the numbers of the loop
        return Outcome(None, lower)
    limits.clock.charge(best.go_on())  # alone, for it compiles the loops
    try:
        with ThreadPoolExecutor(threads) as pool:
            while value > lower and not limits.clock.over and in_vain < HABITS.patience:
                check()
                limits.clock.charge(max(pool.map(Walk.go_on, walks)))
                best = min(walks, key=lambda walk: walk.value)
                for walk in walks:
                    if walk.stuck:
                        walk.begin_again(best)
                        in_vain += 1
                if best.value < value:
                    value, in_vain = best.value, 0
                    if progress is not None:
                        progress(value, lower)
    except KeyboardInterrupt:
        limits.clock.interrupt()
    found = best.schedule() if best.value < schedule.objective(objective) else None
    return Outcome(found, lower, interrupted=limits.clock.interrupted)


class Walk:
    """One search from a schedule on: its plan now, and the best that it came by."""

    def __init__(self, network: Network, jobs: Jobs, objective: Objective, lower: int, seed: int, slower: int = 1) -> None:
        self.network, self.jobs, self.objective, self.lower, self.slower = network, jobs, objective, lower, slower
        self.plan, self.work = Plan.empty(jobs), Work.empty(jobs, seed)
        self.largest = 2 * (sum(self.network.duration) + sum(self.network.lag))
        self.moves, self.stuck = _FIRST, False
        if objective == "span":
            self.plan.rest[self.jobs.devices :] = -NEVER
        self._arrange(np.arange(self.jobs.nodes))

    @property
    def value(self) -> int:
        """The best one so far."""
        return int(self.work.counts[BEST])

    def go_on(self) -> float:
        """Make some moves; in how many deterministic seconds."""
        count, best = self.work.counts, self.value
        before = count[[LOOKED, SET]]
        outcome = search(self.moves, self.largest, self.moves, self.lower, HABITS, self.jobs, self.plan, self.work)
        seconds = float((count[[LOOKED, SET]] - before) @ _LOOK) + _NODE * self.jobs.nodes
        each = self.slower * seconds / self.moves
        self.moves = max(1, min(2 * self.moves, int(_CHUNK / each), HABITS.vain))
        self.stuck = outcome != GOES_ON or int(count[SINCE]) > HABITS.vain
        if not self.stuck:
            self._sort()
            if self.objective == "span":
                self._arrange(self.plan.sequence if self.value >= best else self.work.best)
        return seconds

    def begin_again(self, other: Walk) -> None:
        """From the best of another search on, with some random moves."""
        work = self.work
        work.best[:], work.counts[BEST] = other.work.best, other.value
        work.counts[SINCE], work.counts[KICKS] = 0, HABITS.random
        self._arrange(work.best)

    def schedule(self) -> Schedule:
        """The best one."""
        pipeline = self.network.pipeline
        self._arrange(self.work.best)
        numbers = np.array(self.network.number, dtype=np.int64)
        times = np.full(pipeline.index.size, np.nan)
        for half in halves(pipeline.index, numbers):
            times[half[half >= 0]] = self.plan.head[half >= 0]
        rows = tuple(numbers[self.work.best[a:b]] for a, b in pairwise(self.network.offsets[: pipeline.devices + 1]))
        schedule = in_turn(pipeline, Order(pipeline.index, rows), times)
        return shortest_spans(schedule) if self.objective == "span" else schedule

    def _arrange(self, sequence: IntArray) -> None:
        """Let this be the sequence, with its times, for spans in the best ones."""
        jobs, plan = self.jobs, self.plan
        plan.sequence[:] = sequence
        change = jobs.change[plan.sequence]
        held = change.cumsum() - change
        plan.level[:] = held - np.repeat(held[jobs.begin[:-1]], np.diff(jobs.begin))
        self._set()
        if self.objective == "span":
            devices = jobs.devices
            last = plan.sequence[jobs.begin[1 : devices + 1] - 1]
            weight = np.zeros((devices, devices), dtype=np.int64)
            for device, row in enumerate(weight):  # everything else begins so early that no path from it counts
                plan.release[:], plan.release[device] = -NEVER, 0
                self._set()
                row[:] = np.maximum(plan.head[last] + jobs.duration[last], NO_PATH)
            begins, _ = best_begins(weight)
            plan.release[:] = -NEVER
            plan.release[:devices], plan.rest[:devices] = begins, -begins
            self._set()
        self._sort()

    def _set(self) -> None:
        arrange(self.jobs.nodes, self.largest, self.jobs, self.plan, self.work)

    def _sort(self) -> None:
        """Let the topological order be that of the times: then what is between two operations of a machine is near them."""
        plan = self.plan
        plan.ranked[:] = plan.ranked[np.argsort(plan.head[plan.ranked], kind="stable")]
        plan.rank[plan.ranked] = np.arange(self.jobs.nodes)
