"""Which stages should recompute their activations: branch and bound over the stages, around the solver.

A node of the tree has decided some stages: some recompute, some do not. Its bound is that of one pipeline, :func:`relaxed`, in
which the open stages have both advantages; where no stage is open, the pipeline itself is solved. The order that is found for
a relaxed pipeline, run with as little recomputing as the memory limit allows, is a schedule of the whole problem, and the stages
that still recompute then are where the tree branches. List scheduling is tried on these too, and on all that may recompute.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from ppopt.clock import Clock
from ppopt.constraints import Word
from ppopt.heuristics import baselines
from ppopt.interrupt import noting
from ppopt.named import Row, Table, rows_of
from ppopt.named.model import Model
from ppopt.pipeline import Pipeline, PipelineError
from ppopt.schedule import Objective, Schedule
from ppopt.search import strategies, tuning
from ppopt.search.closed import check_found, solve_closed
from ppopt.search.result import Limit, Reason, Result, Ticks
from ppopt.search.settings import Settings
from ppopt.search.step import Taken
from ppopt.timing import CyclicOrder, broken, time_order

Stages = frozenset[int]


def relaxed(pipeline: Pipeline, yes: Stages, no: Stages) -> Pipeline:
    """A pipeline (costs per stage) whose open stages, neither in ``yes`` nor in ``no``, recompute in no time at all.

    Nothing that any choice for the open stages allows takes less on it. Take a schedule of such a choice and keep every start.
    On this pipeline each operation is as long or shorter, so whatever waited for it still finds it ended, and no two operations
    of a device overlap. Let a stage hold ``a`` and retain ``r`` by that choice, ``a'`` and ``r'`` here. Then ``a' <= a`` and
    ``r' <= r``: what is retained is given, and the same for both, or it is what is held. From F on the stage holds ``a'``, no
    more than ``a``; while I runs ``max(a', r')``, no more than ``max(a, r)``; from then on ``r'``, no more than ``r``; and
    nothing after W or B, which end as early or earlier. So at any time a device holds as much or less, although I may take more
    here than there, where F has taken it before. The schedule is thus one of this pipeline, and no operation ends later: neither
    its makespan nor a device's span has grown.

    Raises:
        PipelineError: the memory limit does not even leave room for one microbatch.
    """
    extra = pipeline.costs.recompute
    costs = [extra if isinstance(extra, Fraction) else extra[stage] for stage in range(pipeline.stages) if extra is not None]
    free = tuple(cost if stage in yes else Fraction(0) for stage, cost in enumerate(costs))
    return pipeline.changed(
        costs=dataclasses.replace(pipeline.costs, recompute=free),
        recompute=[stage for stage in range(pipeline.stages) if stage not in no],
        route_of_microbatch=pipeline.route_of_microbatch,
    )


@dataclass
class _Node:
    """Stages that recompute, stages that do not, and what is known of every schedule of such a choice."""

    yes: Stages
    no: Stages
    bound: Fraction
    seconds: float
    start: Schedule | None = None


@dataclass
class RecomputeChoice:
    """The best schedule over every choice of the stages that recompute, for a pipeline that leaves just that open.

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
    """A heap: the smallest bound first, of equal ones the node with the fewest open stages."""
    tried: set[Stages] = field(default_factory=set)
    """Stages for which list scheduling was tried."""
    steps: list[Taken] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    named: tuple[Row, ...] | None = None
    seconds: float = 0.0
    """What the search has taken."""
    count: Callable[[], int] = field(default_factory=lambda: itertools.count().__next__)
    progress: Callable[[Fraction | None, Fraction], None] | None = None
    enough: Fraction | float = math.inf

    def __post_init__(self) -> None:
        self.each = self.pipeline.per_stage()
        """The pipeline with its costs per stage."""
        self._clock = Clock(0)
        self.nodes = [
            self._entry(_Node(frozenset(), frozenset(), Fraction(0), strategies.RECOMPUTE_ROOT * self.settings.seconds))
        ]

    @property
    def relaxation(self) -> Pipeline | None:
        """A pipeline on which nothing takes longer than with any choice; ``None`` where not one microbatch fits."""
        try:
            return relaxed(self.each, frozenset(), frozenset())
        except PipelineError:
            return None

    def go_on(
        self, clock: Clock, enough: Fraction | float, progress: Callable[[Fraction | None, Fraction], None] | None
    ) -> Result:
        """Search until the clock is over, or until no choice has less than ``enough``."""
        self.progress, self.enough, self._clock = progress, enough, clock
        begun = time.monotonic()
        try:
            with noting():
                if self.named is None:
                    self.named = tuple(self.beside())
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
            if schedule is not None and schedule.pipeline.routes == self.pipeline.routes and not schedule.order.paired:
                self._found(schedule)

    def _run(self) -> None:
        """Solve the node of the smallest bound, until the gap is closed or the time is up."""
        while self.nodes and not self.closed and not self._clock.over and self.lower < self.enough:
            self._visit(self.nodes[0][-1])  # it stays in the heap until it is done: its bound counts

    def _visit(self, node: _Node) -> None:
        stages = frozenset(range(self.pipeline.stages))
        undecided = stages - node.yes - node.no
        try:
            pipeline = relaxed(self.each, node.yes, node.no) if undecided else self._resolved(node.yes)
        except PipelineError:
            self._replace()
            self.steps.append(Taken(self._name(node), 0.0, "the memory limit is too low"))
            return
        result = self._solved(pipeline, node)
        bound = max(node.bound, Fraction(result.ticks.lower_bound, pipeline.ticks.per_unit))
        if not self.steps:
            self.proved_by = result.proved_by
        chosen: Stages = frozenset()
        if result.schedule is not None:
            found = self._with_least(result.schedule, stages - node.no) if undecided else result.schedule
            chosen = stages - node.no if found is None else found.pipeline.recomputing
            if found is not None:
                self._found(found)
            if undecided:
                self._listed(chosen)
                self._listed(stages - node.no)
        seconds, start = strategies.RECOMPUTE_NODE * self.settings.seconds, result.schedule
        branches = sorted(undecided & chosen if result.schedule is not None else undecided, key=self._cost)
        if bound >= self.value or result.reason == "infeasible":
            self._replace()
            outcome = "nothing better"
        elif branches and not self._clock.interrupted:
            stage = branches[-1]
            self._replace(
                _Node(node.yes, node.no | {stage}, bound, seconds, start),
                _Node(node.yes | {stage}, node.no, bound, seconds, start),
            )
            outcome = f"branches on stage {stage}"
        else:  # what the node's pipeline takes is not settled yet
            self._replace(_Node(node.yes, node.no, bound, 2 * node.seconds, start))
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

    def _with_least(self, schedule: Schedule, stages: Stages) -> Schedule | None:
        """The order of a schedule with as few of these stages recomputing as fit, the most expensive left out first.

        ``None``: longer operations break what binds.
        """
        kept = self._timed(stages, schedule)
        for stage in sorted(stages, key=self._cost, reverse=True):
            if kept is None:
                return None
            without = self._timed(kept.pipeline.recomputing - {stage}, schedule)
            if without is not None and without.within_memory:
                kept = without
        return kept

    def _timed(self, stages: Stages, schedule: Schedule) -> Schedule | None:
        """The order of a schedule where exactly these stages recompute; ``None``: no microbatch fits, or what binds is broken."""
        try:
            timed = time_order(self._resolved(stages), schedule.order, words=self.words)
        except (PipelineError, CyclicOrder):
            return None
        return None if self.words and broken(timed, self.words) else timed

    def _listed(self, stages: Stages) -> None:
        """Try list scheduling where exactly these stages recompute, once; it knows no words that bind."""
        if stages not in self.tried and not self._clock.over and not self.words:
            self.tried.add(stages)
            for _, schedule in baselines(self._resolved(stages)):
                self._clock.charge(tuning.SCHEDULED * schedule.pipeline.index.computations)
                self._found(schedule)

    def _found(self, schedule: Schedule) -> None:
        value = Fraction(schedule.objective(self.objective), schedule.pipeline.ticks.per_unit)
        if schedule.within_memory and value < self.value:
            self.best, self.value = schedule, value

    def _resolved(self, stages: Stages) -> Pipeline:
        return self.pipeline.resolved(stages)

    def _cost(self, stage: int) -> tuple[Fraction, int]:
        extra = self.each.costs.recompute
        assert extra is not None
        return (extra if isinstance(extra, Fraction) else extra[stage]), stage

    def _entry(self, node: _Node) -> tuple[Fraction, int, int, _Node]:
        return node.bound, -len(node.yes) - len(node.no), self.count(), node

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
        def listed(stages: Stages) -> str:
            return ",".join(map(str, sorted(stages)))

        parts = [f"{word} {listed(stages)}" for word, stages in (("recompute", node.yes), ("keep", node.no)) if stages]
        return "stages: " + ("; ".join(parts) or "all open")

    def _report(self) -> None:
        if self.progress is not None:
            value = None if self.best is None else Fraction(self.value)
            self.progress(value, Fraction(self.lower) if math.isfinite(self.lower) else Fraction(0))

    def _result(self) -> Result:
        """The answer, its schedule checked; without one, on the pipeline in which every stage recomputes."""
        pipeline = self.pipeline.resolved("all") if self.best is None else self.best.pipeline
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
