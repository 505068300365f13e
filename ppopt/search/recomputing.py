"""What stages should recompute: branch and bound over the stages, around the solver.

A stage has options, each with more time for less memory (:class:`~ppopt.pipeline.recompute_choices.RecomputeChoices`): to
recompute or not, or, with layers, how many at which level. A node of the tree has two choices, a lowest and a highest option of
each stage. Its bound is that of one pipeline, relaxed between the two; where they are the same, the pipeline itself is solved.
Where no option of a stage is the fastest for all microbatches, its relaxed time may be that of none: then ranges are halved.
The order that is found for a relaxed pipeline, run with as little recomputing as the memory limit allows, is a schedule of the
whole problem, and the stages that still recompute more than the lowest option are where the tree branches. List scheduling is
tried with these too, and with the highest options.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction

from ppopt.clock import Clock
from ppopt.constraints import Word
from ppopt.heuristics import each_baseline
from ppopt.interrupt import noting
from ppopt.named import Row, Table, rows_of
from ppopt.named.model import Model
from ppopt.named.recomputing.levels import least_levels
from ppopt.pipeline import Pipeline, PipelineError, TooLittleMemory
from ppopt.pipeline.recompute_choices import Choice, RecomputeChoices
from ppopt.schedule import Objective, Schedule
from ppopt.search import strategies, tuning
from ppopt.search.choices import rows_in_time
from ppopt.search.closed import check_found, first_bound, solve_closed
from ppopt.search.result import Limit, Reason, Result, Ticks
from ppopt.search.settings import Settings
from ppopt.search.step import Taken
from ppopt.search.whereabouts import at
from ppopt.timing import CyclicOrder, obeys_all, time_order


@dataclass
class _Node:
    """The lowest and the highest option of each stage, and what is known of every schedule of a choice between them."""

    low: Choice
    high: Choice
    bound: Fraction
    seconds: float
    start: Schedule | None = None


@dataclass
class RecomputeChoice:
    """The best schedule over every choice of what recomputes, for a pipeline that leaves just that open.

    The search can go on where it stopped (:meth:`go_on`). Its bound holds for every choice: the smallest of the nodes that are
    still open. ``words`` bind beside the rules, whatever recomputes; ``beside`` gives rows to show and to begin from. Times of
    the objective are in the user's unit.

    Raises:
        PipelineError: the stages have other costs on another route.
    """

    pipeline: Pipeline
    objective: Objective
    settings: Settings
    words: tuple[Word, ...] = ()
    beside: Callable[[], Sequence[Row]] = lambda: ()
    result: Result | None = None
    """What the search has shown so far."""
    best: Schedule | None = None
    value: Fraction | float = math.inf
    proved_by: str | None = None
    nodes: list[tuple[Fraction, int, int, _Node]] = field(default_factory=list)
    """A heap: the smallest bound first, of equal ones the node with the fewest open options."""
    tried: set[Choice] = field(default_factory=set)
    """Choices for which list scheduling was tried."""
    steps: list[Taken] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    named: tuple[Row, ...] | None = None
    seconds: float = 0.0
    """What the search has taken."""
    count: Callable[[], int] = field(default_factory=lambda: itertools.count().__next__)
    start: Schedule | None = None
    """A schedule of another pipeline with the same operations, whose order to begin with."""
    progress: Callable[[Fraction | None, Fraction], None] | None = None
    enough: Fraction | float = math.inf

    def __post_init__(self) -> None:
        self.choices = RecomputeChoices(self.pipeline)
        self._clock = Clock(0)
        root = strategies.RECOMPUTE_ROOT * self.settings.seconds
        self.nodes = [self._entry(_Node(self.choices.lowest, self.choices.highest, Fraction(0), root))]

    def floor(self, objective: Objective) -> Fraction | float:
        """A quick lower bound: that of a pipeline on which nothing takes longer; infinite where not one microbatch fits."""
        try:
            return first_bound(self.choices.relaxed(self.choices.lowest, self.choices.highest), objective)
        except TooLittleMemory:
            return math.inf

    def begin(self, start: Schedule | None, bound: Fraction = Fraction(0)) -> None:
        """Take over a schedule of some choice, and a bound that holds for all."""
        if start is not None:
            self.start = start
            self._found(start)
        if bound:
            nodes = [self._entry(dataclasses.replace(node, bound=max(node.bound, bound))) for *_, node in self.nodes]
            heapq.heapify(nodes)
            self.nodes = nodes

    def go_on(
        self, clock: Clock, enough: Fraction | float, progress: Callable[[Fraction | None, Fraction], None] | None
    ) -> Result:
        """Search until the clock is over, or until no choice has less than ``enough``."""
        self.progress, self.enough, self._clock = progress, enough, clock
        begun = time.monotonic()
        try:
            with noting():
                if self.named is None:
                    self.named = rows_in_time(self.beside, self.pipeline, clock)
                    self._begin(self.named)
                self._run()
        except KeyboardInterrupt:
            clock.interrupt()
        self.seconds += time.monotonic() - begun
        self.result = self._result()
        return self.result

    def _begin(self, named: Sequence[Row]) -> None:
        """Begin with the best named schedule of this placement, where nothing else binds."""
        for row in named if not self.words else ():
            schedule = row.schedule
            if schedule is not None and schedule.pipeline.places == self.pipeline.places and not schedule.order.paired:
                self._found(schedule)
        if self.start is not None:
            root = self.nodes[0][-1]
            root.start = self.start
            self._with_few(self.start)
            found = self._with_least(self.start, root)
            if found is not None:
                self._found(found[0])

    def _run(self) -> None:
        """Solve the node of the smallest bound, until the gap is closed or the time is up."""
        while self.nodes and not self.closed and not self._clock.over and self.lower < self.enough:
            self._visit(self.nodes[0][-1])  # it stays in the heap until it is done: its bound counts

    def _visit(self, node: _Node) -> None:
        undecided = node.low != node.high
        try:
            pipeline = self.choices.relaxed(node.low, node.high) if undecided else self.choices.resolved(node.low)
        except TooLittleMemory:
            self._replace()
            self.steps.append(Taken(self._name(node), 0.0, "the memory limit is too low"))
            return
        with at(self._name(node)):
            result = self._solved(pipeline, node)
        bound = max(node.bound, Fraction(result.ticks.lower_bound, pipeline.ticks.per_unit))
        if not self.steps:
            self.proved_by = result.proved_by
        chosen = node.high
        if result.schedule is not None:
            found = (result.schedule, node.low) if not undecided else self._with_least(result.schedule, node)
            if found is not None:
                self._found(found[0])
                chosen = found[1]
            if undecided:
                self._with_few(result.schedule)
                self._listed(chosen)
                self._listed(node.high)
        seconds, start = strategies.RECOMPUTE_NODE * self.settings.seconds, result.schedule
        more = [
            (self.choices.time(s, c) - self.choices.time(s, a), s)
            for s, (a, c) in enumerate(zip(node.low, chosen, strict=True))
            if a < c
        ]
        if bound >= self.value or result.reason == "infeasible":
            self._replace()
            outcome = "nothing better"
        elif (more or (undecided and result.reason == "optimal")) and not self._clock.interrupted:
            stage = max(more)[1] if more else max(range(len(node.low)), key=lambda s: node.high[s] - node.low[s])
            first = chosen[stage] if more else (node.low[stage] + node.high[stage] + 1) // 2
            self._replace(
                _Node(node.low, _with(node.high, stage, first - 1), bound, seconds, start),
                _Node(_with(node.low, stage, first), node.high, bound, seconds, start),
            )
            outcome = f"branches on stage {stage}"
        else:  # what the node's pipeline takes is not settled yet
            self._replace(_Node(node.low, node.high, bound, 2 * node.seconds, start))
            outcome = "stays open"
        shown = "" if self.best is None else f", best {float(self.value):.6g}"
        self.steps.append(Taken(self._name(node), result.seconds, f"bound {float(bound):.6g}{shown}: {outcome}"))
        self._report()

    def _solved(self, pipeline: Pipeline, node: _Node) -> Result:
        per_unit = pipeline.ticks.per_unit
        gap = Fraction(self.settings.gap)
        enough = min(self.value * (1 - gap), self.enough)
        result = solve_closed(
            pipeline,
            self.objective,
            dataclasses.replace(self.settings, gap=self.settings.gap if self.best is None else 0.0),
            words=self.words,
            beside=lambda: rows_of(pipeline),
            start=node.start,
            lower_bound=math.ceil(node.bound * per_unit),
            enough=math.ceil(enough * per_unit) if isinstance(enough, Fraction) else None,
            clock=self._clock.slice(node.seconds),
        )
        self.versions.update(result.versions)
        return result

    def _with_least(self, schedule: Schedule, node: _Node) -> tuple[Schedule, Choice] | None:
        """The order of a schedule with as little recomputing as fits: where it takes most time it is left out first, while
        there is time.

        ``None``: longer operations break what binds.
        """
        choice = node.high
        kept = self._timed(choice, schedule)
        for stage in sorted(range(len(choice)), key=lambda s: (self.choices.time(s, node.high[s]), s), reverse=True):
            for number in range(node.low[stage], choice[stage]):
                if kept is None:
                    return None
                if self._clock.over:
                    return kept, choice
                less = self._timed(_with(choice, stage, number), schedule)
                if less is not None and less.within_memory:
                    kept, choice = less, _with(choice, stage, number)
                    break
        return None if kept is None else (kept, choice)

    def _with_few(self, schedule: Schedule) -> None:
        """The order of a schedule where each device has layers of its first stages recompute, as few as fit."""
        if self.pipeline.layers is not None and not self.words and not self._clock.over:
            with suppress(PipelineError, CyclicOrder):
                self._found(least_levels(self.pipeline, lambda pipeline: time_order(pipeline, schedule.order)))

    def _timed(self, choice: Choice, schedule: Schedule) -> Schedule | None:
        """The order of a schedule with this choice; ``None``: no microbatch fits, or what binds is broken."""
        try:
            timed = time_order(self.choices.resolved(choice), schedule.order, words=self.words)
        except (PipelineError, CyclicOrder):
            return None
        return None if self.words and not obeys_all(timed, self.words) else timed

    def _listed(self, choice: Choice) -> None:
        """Try list scheduling with this choice, once; it knows no words that bind."""
        if choice not in self.tried and not self._clock.over and not self.words:
            self.tried.add(choice)
            for _, schedule in each_baseline(self.choices.resolved(choice)):
                self._clock.charge(tuning.SCHEDULED * schedule.pipeline.index.computations)
                self._found(schedule)
                if self._clock.over and self.best is not None:
                    break

    def _found(self, schedule: Schedule) -> None:
        value = Fraction(schedule.objective(self.objective), schedule.pipeline.ticks.per_unit)
        if schedule.within_memory and value < self.value:
            self.best, self.value = schedule, value

    def _entry(self, node: _Node) -> tuple[Fraction, int, int, _Node]:
        return node.bound, sum(b - a for a, b in zip(node.low, node.high, strict=True)), self.count(), node

    def _replace(self, *nodes: _Node) -> None:
        """Put these in the place of the node of the smallest bound, in one step: an interruption loses no bound."""
        nodes_ = [*self.nodes[1:], *map(self._entry, nodes)]
        heapq.heapify(nodes_)
        self.nodes = nodes_

    @property
    def lower(self) -> Fraction | float:
        """No choice of stages has a schedule that takes less."""
        return min(self.nodes[0][0], self.value) if self.nodes else self.value if self.steps else 0

    @property
    def closed(self) -> bool:
        """Whether the gap is no larger than asked for."""
        return self.best is not None and self.value - self.lower <= self.settings.gap * self.value

    def _name(self, node: _Node) -> str:
        if self.pipeline.layers is not None:
            settled = sum(a == b for a, b in zip(node.low, node.high, strict=True))
            return f"levels: {settled} of {len(node.low)} stages settled"
        yes = [str(stage) for stage, number in enumerate(node.low) if number]
        no = [str(stage) for stage, number in enumerate(node.high) if not number]
        parts = [f"{word} {','.join(stages)}" for word, stages in (("recompute", yes), ("keep", no)) if stages]
        return "stages: " + ("; ".join(parts) or "all open")

    def _report(self) -> None:
        if self.progress is not None:
            value = None if self.best is None else Fraction(self.value)
            self.progress(value, Fraction(self.lower) if math.isfinite(self.lower) else Fraction(0))

    def _result(self) -> Result:
        """The answer, its schedule checked; without one, on the pipeline in which every stage recomputes as much as it can."""
        pipeline = self.choices.resolved(self.choices.highest) if self.best is None else self.best.pipeline
        lower = math.floor(self.lower * pipeline.ticks.per_unit) if math.isfinite(self.lower) else 0
        if self.best is not None:
            check_found(self.best, self.words)
        reason: Reason = "no-solution" if self.nodes or not self.steps else "infeasible"
        if self.best is not None:
            reason = "optimal" if self.lower >= self.value else "feasible"
        limit: Limit | None = None
        if reason in ("feasible", "no-solution") and self.lower < self.enough:
            limit = "interrupted" if self._clock.interrupted else "gap" if self.closed else "time"
        visited = len(self.steps)
        proof = f"{self.proved_by}, whichever stages recompute" if self.proved_by is not None else None
        if visited > 1:
            proof = f"branch and bound over the stages that recompute ({visited} nodes)"
        return Result(
            model=Model(pipeline),
            objective=self.objective,
            schedule=self.best,
            reason=reason,
            limit=limit,
            ticks=Ticks.of(pipeline, self.objective, self.best, lower),
            proved_by=proof,
            seconds=self.seconds,
            seed=self.settings.seed,
            versions=self.versions,
            named=Table(self.named or (), self.pipeline),
            steps=tuple(self.steps),
            binding=self.words,
        )


def _with(choice: Choice, stage: int, number: int) -> Choice:
    """A choice with another option of one stage."""
    return (*choice[:stage], number, *choice[stage + 1 :])
