"""Tabu search: one operation after the other moves, along critical paths, whether that makes the schedule better or not.

It is how job shops are scheduled (Nowicki and Smutnicki, "A fast taboo search algorithm for the job shop problem", 1996; moves of
Balas and Vazacopoulos, "Guided local search with shifting bottleneck for job shop scheduling", 1998; Zhang and others, "A tabu
search algorithm with a new neighborhood structure for the job shop scheduling problem", 2007). A pipeline is one whose devices
have memory, too. What they hold depends on their own order alone. Every second walk may exceed it, at a price that rises until
there is room again: measured, where memory is tight, schedules get up to 5 % shorter so.

*Device spans.* Times are counted from when the devices begin, as the best times of an order have it
(:func:`ppopt.timing.paths.shortest_spans`); between two looks at these the begins stay.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ppopt.clock import Clock, Limits
from ppopt.compiled import available, expect
from ppopt.interrupt import check
from ppopt.pipeline import Pipeline
from ppopt.schedule import Objective, Schedule
from ppopt.solvers.outcome import Outcome, Progress
from ppopt.tabu.jobs import HABITS, Jobs
from ppopt.tabu.kept import Kept
from ppopt.tabu.loop import search
from ppopt.tabu.paths import NEVER
from ppopt.tabu.walk import Walk
from ppopt.timing.links import begun, network_in_turn

_UNCOMPILED = 100
"""How many times as long it takes without numba. Measured: 3 to 15 ms for a move."""


def unknown(pipeline: Pipeline) -> str | None:
    """What a pipeline has that is not known here; ``None``: nothing."""
    if pipeline.engines:
        return "it knows nothing of copies to the host"
    if pipeline.links.blocking and pipeline.lines:
        return "it knows nothing of transfers that block"
    if pipeline.backward_routes and pipeline.amounts.limit is not None:
        return "it knows nothing of memory that is held on another device"
    if pipeline.ticks.pauses or not _once_each(pipeline):
        return "it knows nothing of what a device exchanges stage by stage"
    return None


def _once_each(pipeline: Pipeline) -> bool:
    """Whether what a device does before and after its operations is the same whichever of them come first and last."""
    ticks, place = pipeline.ticks, pipeline.device_by_kind
    run = ticks.duration >= 0
    return all(
        len(set(table[run & (place == device)].tolist())) <= 1
        for table in (ticks.lead, ticks.tail)
        for device in (range(pipeline.devices) if table.any() else ())
    )


class Search:
    """Walks from schedules that have the same operations, all with the pairs and the ways to run each backward of the first one.

    Where the best walks led is kept, so that a search goes on later where it stopped. For pipelines of which nothing is
    :func:`unknown`.
    """

    def __init__(self, schedule: Schedule, objective: Objective, seed: int) -> None:
        self.objective: Objective = objective
        self._network, _ = network_in_turn(schedule.pipeline, schedule.order, begun(schedule))
        self._jobs, self._seed = Jobs.of(self._network), seed
        self._walks: list[Walk] = []
        self._kept = Kept(self._jobs, seed)
        self._starts = [np.arange(self._jobs.nodes)]
        self.over = False
        """Whether the last search was over because enough walks were in vain."""

    def begin_at(self, schedule: Schedule) -> bool:
        """Let a walk begin at a schedule of the same pipeline, too; ``False``: it has other operations."""
        network, _ = network_in_turn(schedule.pipeline, schedule.order, begun(schedule))
        node = {number: node for node, number in enumerate(self._network.number.tolist())}
        numbers = network.number.tolist()
        if len(numbers) != len(node) or not all(number in node for number in numbers):
            return False
        self._starts.append(np.array([node[number] for number in numbers], dtype=np.int64))
        return True

    def improved(self, than: int, lower: int, limits: Limits, progress: Progress | None = None) -> Outcome:
        """The best schedule that was found, where it takes less than ``than`` ticks.

        ``lower``: a proved bound in ticks, where the search is over; so it is once enough walks were in vain. As many walk at a
        time as there are workers. Ctrl-C stops it and is noted in the outcome.
        """
        clock = limits.clock
        expect(HABITS.patience * HABITS.vain, search)
        threads = limits.threads if available() else 1
        slower = 1 if available() or clock.deterministic else _UNCOMPILED
        for number in range(len(self._walks), threads):
            self._walks.append(Walk(self._network, self._jobs, self.objective, self._seed * 1000 + number, slower))
        walks = self._walks[:threads]
        if not clock.over and walks[0].largest <= NEVER // 4:  # longer paths would not fit the numbers of the loop
            try:
                self._go_on(walks, than, lower, clock, progress)
            except KeyboardInterrupt:
                clock.interrupt()
            for walk in walks:
                self._kept.keep(walk)
        found = walks[0].schedule(self._kept.best.sequence) if self._kept.walks and self._kept.best.value < than else None
        return Outcome(found, lower, interrupted=clock.interrupted)

    def _go_on(self, walks: list[Walk], value: int, lower: int, clock: Clock, progress: Progress | None) -> None:
        """Until the time is over, the value is ``lower`` or enough walks were in vain."""
        self.over, in_vain, alone = False, 0, walks[:1]  # at first, for it compiles the loops
        share = len(walks) * clock.left / 2 / len(self._starts) if len(self._starts) > 1 else math.inf
        ends: dict[Walk, float] = {}
        with ThreadPoolExecutor(len(walks)) as pool:
            while value > lower and not clock.over and in_vain < HABITS.patience:
                check()
                for walk in alone or walks:
                    if walk in ends:
                        if not walk.over and clock.spent <= ends[walk]:
                            continue
                        in_vain += walk.over
                        self._kept.keep(walk)
                    ends[walk] = self._begin(walk, share + clock.spent)
                clock.charge(max(pool.map(lambda walk: walk.go_on(lower), alone or walks)))
                least = min(walk.value for walk in alone or walks)
                alone = []
                if least < value:
                    value, in_vain = least, 0
                    if progress is not None:
                        progress(value, lower)
        self.over = in_vain >= HABITS.patience

    def _begin(self, walk: Walk, share: float) -> float:
        """Let a walk begin anew, where a schedule was given or near what is kept; when it is cut short."""
        if self._starts:
            walk.begin(self._starts.pop(0))
            return share
        if self._kept.walks:
            self._kept.send(walk)
        else:
            walk.begin(self._walks[0].best, HABITS.random)
        return math.inf


def improved(
    schedule: Schedule, *, objective: Objective, lower: int, limits: Limits, seed: int, progress: Progress | None = None
) -> Outcome:
    """The best schedule found from this one on (:class:`Search`); none where none is better."""
    return Search(schedule, objective, seed).improved(schedule.objective(objective), lower, limits, progress)
