"""An order that is made from costs, or timed with links that are held: a local search over the stages that recompute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from ppopt.named.definition import Restriction
from ppopt.named.recomputing.limits import Limits
from ppopt.named.recomputing.stages import Key, Objective, bits_of, ends, stages_of, work_added
from ppopt.named.recomputing.tree import best_stages
from ppopt.pipeline import Pipeline, PipelineError
from ppopt.schedule import Schedule
from ppopt.timing.recomputed import needs_of

MADE, MADE_LIMITED, RETIMED = 5, 8, 5
"""Most orders that a local search looks at: of a schedule whose order is made from the costs, from the costs and the memory
limit, and of an order that is pinned where transfers hold links."""
LARGE = 2**12
"""Operations beyond which it looks at three only."""


class LocalSearch:
    """A search for the stages that suit a schedule best, where each set of them may have another order.

    ``made`` makes the schedule of a pipeline with such a set. ``orders`` is the largest number of them that are made.
    ``both_ways``: more recomputing may make the schedule shorter, because its rule keeps the memory limit, or because transfers
    come in another order.
    """

    def __init__(
        self, pipeline: Pipeline, made: Callable[[Pipeline], Schedule], objective: Objective, orders: int, both_ways: bool
    ) -> None:
        self.pipeline, self.made, self.objective, self.both_ways = pipeline, made, objective, both_ways
        alone = pipeline.changed(links=pipeline.links.uncontended(), route_of_microbatch=pipeline.route_of_microbatch)
        self.ends = ends(alone)
        self.added = work_added(*self.ends)
        operations = 3 * pipeline.stages * pipeline.microbatches
        self.left = orders if operations <= LARGE else 3
        self.tried: set[int] = set()
        self.found: tuple[Key, int, Schedule] | None = None

    def best(self) -> Schedule:
        """The best schedule found that fits; if none does, that with recomputing everywhere.

        Raises:
            Restriction: that is not possible either.
        """
        all_ = (1 << self.pipeline.stages) - 1
        made = [self._try(0), self._try(all_)]
        if self.found is not None and self.found[1] == 0 and not self.both_ways:
            return self.found[-1]
        for schedule in made:
            for stages in () if schedule is None else self._suited(schedule):
                self._try(stages)
        while self.found is not None and self.left > 0:
            best, stages, schedule = self.found
            own = sorted(stages_of(all_), key=lambda stage: (self.added[stage], stage))
            fewer = [stages & ~(1 << stage) for stage in reversed(own) if stages >> stage & 1]
            more = [stages | 1 << stage for stage in own if self.both_ways and not stages >> stage & 1]
            for other in (*self._suited(schedule), *fewer, *more):
                self._try(other)
                if self.found[0] < best:
                    break
            else:
                break
        if self.found is not None:
            return self.found[-1]
        return made[1] or self.made(self.pipeline.resolved("all"))

    def _suited(self, schedule: Schedule) -> Iterator[int]:
        """The stages that suit the order of a schedule best, if no transfer waits for another; and those that nearly add the
        least work."""
        best = best_stages(*self.ends, schedule.order, self.objective)
        if best is not None:
            yield bits_of(best)
            fewest = Limits(needs_of(*self.ends, schedule.order), self.added).fewest()
            if fewest is not None:
                yield fewest

    def _try(self, stages: int) -> Schedule | None:
        """The schedule where these stages recompute, if it may be the best; each set once, while there are orders left."""
        if stages in self.tried or self.left <= 0:
            return None
        self.tried.add(stages)
        added = sum(self.added[s] for s in stages_of(stages))
        try:
            pipeline = self.pipeline.resolved(stages_of(stages))
            if self.found is not None:
                work = Fraction(int(pipeline.work.max()), pipeline.ticks.per_unit)  # nothing takes less
                if (work, added, stages.bit_count()) >= self.found[0]:
                    return None
            self.left -= 1
            schedule = self.made(pipeline)
        except (PipelineError, Restriction):
            return None
        value = Fraction(schedule.objective(self.objective), pipeline.ticks.per_unit)
        key: Key = (value, added, stages.bit_count())
        if schedule.within_memory and (self.found is None or key < self.found[0]):
            self.found = key, stages, schedule
        return schedule
