"""What is asked: a pipeline that leaves nothing open, the objective, what binds, and what is enough."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ppopt.bounds.device_times import device_times
from ppopt.constraints import Pairable, Together, Word, cuts_of, free_choices, memory_between, own_words, rules_of, select
from ppopt.named.in_turn import out_of_turn
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.schedule import Objective, Schedule
from ppopt.search import tuning
from ppopt.search.horizons import ended_by, horizon
from ppopt.solvers.device_times import NOTHING_KNOWN, DeviceTimes
from ppopt.timing import CyclicOrder, obeys_all, time_order


@dataclass(frozen=True)
class Problem:
    """The best schedule of ``pipeline`` for the objective, and a proof of how good it is.

    ``words`` bind beside the rules. The search may stop once ``(value - bound) / value`` is at most ``gap``. ``enough``: only
    values below that many ticks are of interest, so that a bound that reaches it ends the search.
    """

    pipeline: Pipeline
    objective: Objective = "makespan"
    words: tuple[Word, ...] = ()
    gap: float = 0.0
    enough: int | None = None

    def __post_init__(self) -> None:
        between = memory_between(self.pipeline) if self.pipeline.backward_routes else ()
        if not set(between) <= set(self.words):  # no order implies these, so they bind like words of the user's own
            object.__setattr__(self, "words", own_words(self.pipeline, between, self.words))

    @cached_property
    def all_words(self) -> tuple[Word, ...]:
        """The rules, what binds beside them or else may be chosen, and what may be added because it keeps the optimum."""
        return (*rules_of(self.pipeline), *(self.words or free_choices(self.pipeline)), *cuts_of(self.pipeline, self.words))

    @property
    def operations(self) -> int:
        """How many there are, three per stage and microbatch; more where weight gradients come in pieces."""
        return (2 + self.pipeline.costs.weight_pieces) * self.pipeline.stages * self.pipeline.microbatches

    @property
    def large(self) -> bool:
        """Whether there are too many operations for a model of them all. What binds needs such a model."""
        return not self.words and self.operations > tuning.LARGE

    @property
    def differing(self) -> bool:
        """Whether the microbatches of a way differ. Each has a route of its own then."""
        return len(self.pipeline.routes) > len(self.pipeline.ways)

    @property
    def many(self) -> bool:
        """Whether decisions take long."""
        return self.operations > tuning.MANY

    @property
    def span(self) -> bool:
        """Whether the objective is the device span."""
        return self.objective == "span"

    @property
    def pairs(self) -> bool:
        """Whether overlapped pairs may be run."""
        return not self.words or bool(select(self.words, Together, Pairable))

    @property
    def grids(self) -> tuple[int, ...]:
        """The grids on which schedules are sought, in ticks: a coarse one where operations have many steps, and one on which some
        best schedule is: for makespans that of all times. Of device spans the best may lie between the steps of that."""
        longest = int(self.pipeline.ticks.duration.max())
        exact = 1 if self.words or self.span else self.pipeline.ticks.common
        return (-(-longest // tuning.COARSE), exact) if longest > tuning.FINE * exact else (exact,)

    def obeying(self, schedule: Schedule) -> Schedule | None:
        """A schedule of this pipeline with its order timed under what binds; ``None``: it breaks that, or the memory limit."""
        if self.words:
            try:
                schedule = time_order(self.pipeline, schedule.order, words=self.words)
            except CyclicOrder:
                return None
        if not schedule.within_memory or out_of_turn(self.pipeline, schedule.order):
            return None
        if self.words and not obeys_all(schedule, self.words):
            return None
        return schedule

    @cached_property
    def device_times(self) -> DeviceTimes:
        """What is proved of the times of devices in some schedule of a span that is asked for."""
        if not self.span or self.words or self.pipeline.engines:
            return NOTHING_KNOWN
        return device_times(self.pipeline)

    @property
    def longest(self) -> int:
        """Ticks by which some best schedule has ended, whatever it is."""
        return horizon(self.pipeline, self.words)

    @cached_property
    def shortest(self) -> int:
        """Ticks of the shortest operation that a device computes and that takes time."""
        computed = self.pipeline.ticks.duration[:, : len(Kind)]
        return int(computed.min(where=computed > 0, initial=self.longest))

    def ended_by(self, upper: int) -> int:
        """Ticks by which some schedule with an objective of at most ``upper`` has ended, if there is one."""
        return ended_by(self.pipeline, self.objective, upper, self.words)

    def for_makespan(self) -> Problem:
        """The same pipeline with the makespan as the objective."""
        return replace(self, objective="makespan", enough=None)
