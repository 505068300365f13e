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
from ppopt.search.best_choice import BestChoice
from ppopt.search.choices import ClosedBranch, rows_in_time
from ppopt.search.closed import ClosedSearch, check_found
from ppopt.search.narrowing import narrowed, quick, with_option
from ppopt.search.near_cuts import value_of
from ppopt.search.problem import Problem
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
    search: ClosedBranch | None = None
    """That of a single choice."""


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
    visited: int = 0
    """How many nodes of the tree had their turn."""
    left_out: Fraction | float = math.inf
    """Choices were left out that have no schedule of less than that, though none as good is known."""
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
        self._own, self._spent = BestChoice(self.objective, self.settings, self.words), 0.0
        root = strategies.RECOMPUTE_ROOT * self.settings.seconds
        self.nodes = [self._entry(_Node(self.choices.lowest, self.choices.highest, Fraction(0), root))]

    def floor(self, objective: Objective) -> Fraction | float:
        """A quick lower bound: that of a pipeline on which nothing takes longer; infinite where not one microbatch fits."""
        return quick(self.choices, self.choices.lowest, self.choices.highest, objective)

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
            self.nodes[0][-1].start = self.start
            self._with_less(self.start)

    def _run(self) -> None:
        """Solve the node of the smallest bound, and the choice of the best schedule, in turn, until the gap is closed or the time
        is up."""
        while self.nodes and not self.closed and not self._clock.over and self.lower < self.enough:
            node = self.nodes[0][-1]
            single = len(self.nodes) == 1 and node.search is not None  # its own search goes on
            if self.best is not None and not single and self._own.due(self.best, self._spent):
                self._improve(self.best)
                continue
            before = self._clock.spent
            self._visit(node)  # it stays in the heap until it is done: its bound counts
            self._spent += self._clock.spent - before

    def _improve(self, best: Schedule) -> None:
        """Search for a better schedule of the choice of the best one."""
        begun = time.monotonic()
        found, outcome = self._own.improved(best, self._clock), "nothing found"
        if found is not best:
            self._found(found)
            self._with_less(found)
            outcome = f"best {float(self.value):.6g}"
            self._report()
        self.steps.append(Taken("the choice of the best schedule", time.monotonic() - begun, outcome))

    def _narrowed(self, node: _Node) -> _Node:
        """The node without options that are no better than the best, or than what is enough, as far as that is quickly known."""
        below, clock = min(self.value, self.enough), self._clock.slice(node.seconds)
        if below == math.inf or node.low == node.high:
            return node
        if below < self.value:
            self.left_out = min(self.left_out, below)
        low, high = node.low, node.high
        known = quick(self.choices, low, high, self.objective)
        if known < below:
            low, high = narrowed(self.choices, low, high, below, self.objective, clock)
            if (low, high) != (node.low, node.high):
                known = quick(self.choices, low, high, self.objective)
        return dataclasses.replace(node, low=low, high=high, bound=max(node.bound, Fraction(min(known, below))))

    def _visit(self, node: _Node) -> None:
        self.visited += 1
        whole, node = node, self._narrowed(node)
        if node.bound >= min(self.value, self.enough):
            if (node.low, node.high) == (whole.low, whole.high):  # with any of its choices
                self.proved_by = self.proved_by or "closed forms"
            self._done(whole, 0.0, node.bound, "nothing better")
            return
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
        self.proved_by = self.proved_by or result.proved_by
        if bound >= self.value or result.reason == "infeasible":
            self._done(node, result.seconds, bound, "nothing better")
            return
        chosen = node.high
        if result.schedule is not None:
            found = (result.schedule, node.low) if not undecided else self._with_least(result.schedule, node.low, node.high)
            if found is not None:
                self._found(found[0])
                chosen = found[1]
            if undecided:
                self._with_few(result.schedule)
                for choice in (chosen, node.high, node.low):
                    self._listed(choice)
        seconds, start = strategies.RECOMPUTE_NODE * self.settings.seconds, result.schedule
        more = [
            (self.choices.time(s, c) - self.choices.time(s, a), s)
            for s, (a, c) in enumerate(zip(node.low, chosen, strict=True))
            if a < c
        ]
        if bound >= self.value:
            self._done(node, result.seconds, bound, "nothing better")
        elif (more or (undecided and result.reason == "optimal")) and not self._clock.interrupted:
            stage = max(more)[1] if more else max(range(len(node.low)), key=lambda s: node.high[s] - node.low[s])
            first = chosen[stage] if more else (node.low[stage] + node.high[stage] + 1) // 2
            less = _Node(node.low, with_option(node.high, stage, first - 1), bound, seconds, start)
            rest = _Node(with_option(node.low, stage, first), node.high, bound, seconds, start)
            self._done(node, result.seconds, bound, f"branches on stage {stage}", less, rest)
        else:  # what the node's pipeline takes is not settled yet
            again = dataclasses.replace(node, bound=bound, seconds=2 * node.seconds, start=start)
            self._done(node, result.seconds, bound, "stays open", again)

    def _done(self, node: _Node, seconds: float, bound: Fraction, outcome: str, *nodes: _Node) -> None:
        """Put these in the place of a node that was visited, and say so."""
        self._replace(*nodes)
        shown = "" if self.best is None else f", best {float(self.value):.6g}"
        self.steps.append(Taken(self._name(node), seconds, f"bound {float(bound):.6g}{shown}: {outcome}"))
        self._report()

    def _solved(self, pipeline: Pipeline, node: _Node) -> Result:
        """What the search on a pipeline shows in the time of a node; that of a single choice goes on where it stopped."""
        per_unit, gap = pipeline.ticks.per_unit, Fraction(self.settings.gap)
        enough = min(self.value * (1 - gap), self.enough)
        settings = dataclasses.replace(self.settings, gap=self.settings.gap if self.best is None else 0.0)
        search, clock = node.search, self._clock.slice(node.seconds)
        if search is None:
            problem = Problem(pipeline, self.objective, self.words, settings.gap)
            search = ClosedBranch(ClosedSearch(problem, settings, lambda: rows_of(pipeline)))
            search.begin(node.start, math.ceil(node.bound * per_unit))
            node.search = search if node.low == node.high else None
        result = search.go_on(clock, enough, None)
        self.versions.update(result.versions)
        return result

    def _with_less(self, schedule: Schedule) -> None:
        """The order of a schedule with as little recomputing as fits."""
        self._with_few(schedule)
        found = self._with_least(schedule, self.choices.lowest, self.choices.highest)
        if found is not None:
            self._found(found[0])

    def _with_least(self, schedule: Schedule, low: Choice, high: Choice) -> tuple[Schedule, Choice] | None:
        """The order of a schedule with as little recomputing as fits, between two choices.

        Where recomputing takes most time it is left out first, while there is time.

        ``None``: longer operations break what binds.
        """
        choice = high
        kept = self._timed(choice, schedule)
        for stage in sorted(range(len(choice)), key=lambda s: (self.choices.time(s, high[s]), s), reverse=True):
            for number in range(low[stage], choice[stage]):
                if kept is None:
                    return None
                if self._clock.over:
                    return kept, choice
                less = self._timed(with_option(choice, stage, number), schedule)
                if less is not None and less.within_memory:
                    kept, choice = less, with_option(choice, stage, number)
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
        """Try list scheduling with this choice, once, where there is room; it knows no words that bind."""
        if choice in self.tried or self._clock.over or self.words:
            return
        self.tried.add(choice)
        with suppress(TooLittleMemory):
            for _, schedule in each_baseline(self.choices.resolved(choice)):
                self._clock.charge(tuning.SCHEDULED * schedule.pipeline.index.computations)
                self._found(schedule)
                if self._clock.over and self.best is not None:
                    break

    def _found(self, schedule: Schedule) -> None:
        value = value_of(schedule, self.objective)
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
        if not self.nodes and not self.steps:
            return 0
        return min(self.nodes[0][0] if self.nodes else math.inf, self.value, self.left_out)

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
        ticks = Ticks.of(pipeline, self.objective, self.best, lower)
        if self.lower == self.left_out < math.inf:  # what is enough may be no whole number of ticks here
            ticks = ticks.bounded(Fraction(self.left_out))
        if self.best is not None:
            check_found(self.best, self.words)
        reason: Reason = "no-solution" if self.nodes or not self.steps or self.left_out < math.inf else "infeasible"
        if self.best is not None:
            reason = "optimal" if self.lower >= self.value else "feasible"
        limit: Limit | None = None
        if reason in ("feasible", "no-solution") and self.lower < self.enough:
            limit = "interrupted" if self._clock.interrupted else "gap" if self.closed else "time"
        proof = f"{self.proved_by}, whichever stages recompute" if self.proved_by is not None else None
        if self.visited > 1 or (self.visited and proof is None):
            nodes = "1 node" if self.visited == 1 else f"{self.visited} nodes"
            proof = f"branch and bound over the stages that recompute ({nodes})"
        return Result(
            model=Model(pipeline),
            objective=self.objective,
            schedule=self.best,
            reason=reason,
            limit=limit,
            ticks=ticks,
            proved_by=proof,
            seconds=self.seconds,
            seed=self.settings.seed,
            versions=self.versions,
            named=Table(self.named or (), self.pipeline),
            steps=tuple(self.steps),
            binding=self.words,
        )
