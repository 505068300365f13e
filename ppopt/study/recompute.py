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
from typing import Any

from ppopt.bounds import Objective
from ppopt.check import violations
from ppopt.named import Row, compare_freely
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError
from ppopt.schedule import Schedule
from ppopt.solve import Limit, Progress, Reason, Result, Step, solve
from ppopt.solvers.interrupt import noting
from ppopt.timing import baselines, time_order

Stages = frozenset[int]

ROOT, SLICE = 6, 30
"""The parts of the time limit that the root, and at first every other node, may take."""


def solve_choice(
    pipeline: Pipeline,
    *,
    objective: Objective = "makespan",
    time_limit: float = 60.0,
    gap: float = 0.0,
    deterministic: bool = False,
    progress: Progress | None = None,
    chunks: Sequence[int] = (),
    named_params: dict[str, dict[str, Any]] | None = None,
    own: Sequence[Row] = (),
    seed: int = 0,
    **search: Any,
) -> Result:
    """The best schedule over every choice of the stages that recompute, for a pipeline that leaves it open.

    The result's pipeline has the best choice found, its bound holds for every choice. With the time up, the bound is the smallest
    of the nodes that are still open. The named schedules beside it have the stages that suit each of them best
    (:func:`ppopt.named.compare_freely`), and the search begins from those on its placement.

    ``progress`` is called with ticks of the pipeline in which every stage recomputes; the other parameters are those of
    :func:`ppopt.solve.solve`. ``deterministic``: a node that uses up its time counts as that much, any other as a small part of
    it.

    Raises:
        ValueError: the pipeline does not leave it open, or as :func:`ppopt.solve.solve`.
        PipelineError: the stages have other costs on another route.
    """
    if pipeline.recompute != CHOOSE:
        raise ValueError(f'pipeline.recompute: expected "choose", got {pipeline.recompute!r}')
    if not time_limit > 0:
        raise ValueError(f"time_limit: expected seconds > 0, got {time_limit!r}")
    each = pipeline.per_stage()
    settings = {"objective": objective, "deterministic": deterministic, "seed": seed, **search}
    tree = _Tree(pipeline, each, objective, time_limit, gap, deterministic, settings, progress)
    named: tuple[Row, ...] = tuple(own)
    try:
        named = (*own, *compare_freely(pipeline, chunks, named_params or {}, objective))
        tree.begin(named)
        with noting():
            tree.run()
    except KeyboardInterrupt:
        tree.interrupted = True
    return tree.result(named, seed)


def relaxed(pipeline: Pipeline, yes: Stages, no: Stages) -> Pipeline:
    """A pipeline (costs per stage) whose open stages, neither in ``yes`` nor in ``no``, recompute in no time at all.

    Nothing that any choice for the open stages allows takes less on it. Take a schedule of such a choice and keep every start.
    On this pipeline each operation is as long or shorter, so whatever waited for it still finds it ended, and no two operations
    of a device overlap. A stage takes as much or less at the start of F, gives it back as early or earlier, and retains as much
    or less in between, so at any time a device holds as much or less. The schedule is thus one of this pipeline, and no
    operation ends later: neither its makespan nor a device's span has grown.

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
class _Tree:
    """The state of the search; times of the objective are in the user's unit."""

    pipeline: Pipeline
    each: Pipeline
    """The same with its costs per stage."""
    objective: Objective
    time_limit: float
    gap: float
    deterministic: bool
    search: dict[str, Any]
    progress: Progress | None
    best: Schedule | None = None
    value: Fraction | float = math.inf
    proved_by: str | None = None
    interrupted: bool = False
    open: list[tuple[Fraction, int, int, _Node]] = field(default_factory=list)
    """A heap: the smallest bound first, of equal ones the node with the fewest open stages."""
    tried: set[Stages] = field(default_factory=set)
    """Stages for which list scheduling was tried."""
    steps: list[Step] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)
    spent: float = 0.0
    count: Callable[[], int] = field(default_factory=lambda: itertools.count().__next__)

    def begin(self, named: Sequence[Row]) -> None:
        """Begin with the best named schedule of this placement."""
        for row in named:
            schedule = row.schedule
            if schedule is not None and schedule.pipeline.routes == self.pipeline.routes and not schedule.order.paired:
                self._found(schedule)

    def run(self) -> None:
        """Solve the node of the smallest bound, until the gap is closed or the time is up."""
        self.open = [self._entry(_Node(frozenset(), frozenset(), Fraction(0), self.time_limit / ROOT))]
        while self.open and not self.closed and not self.interrupted and self.left > 0:
            self._visit(self.open[0][-1])  # it stays in the heap until it is done: its bound counts

    def _visit(self, node: _Node) -> None:
        stages = frozenset(range(self.pipeline.stages))
        undecided = stages - node.yes - node.no
        try:
            pipeline = relaxed(self.each, node.yes, node.no) if undecided else self._resolved(node.yes)
        except PipelineError:
            self._replace()
            self.steps.append(Step(self._name(node), 0.0, "the memory limit is too low"))
            return
        result = self._solved(pipeline, node)
        self.interrupted = result.limit == "interrupted"
        bound = max(node.bound, Fraction(result.lower_bound, pipeline.ticks.per_unit))
        if not self.steps:
            self.proved_by = result.proved_by
        chosen: Stages = frozenset()
        if result.schedule is not None:
            found = self._with_least(result.schedule, stages - node.no) if undecided else result.schedule
            chosen = found.pipeline.recomputing
            self._found(found)
            if undecided:
                self._listed(chosen)
                self._listed(stages - node.no)
        seconds, start = self.time_limit / SLICE, result.schedule
        branches = sorted(undecided & chosen if result.schedule is not None else undecided, key=self._cost)
        if bound >= self.value or result.reason == "infeasible":
            self._replace()
            outcome = "nothing better"
        elif branches and not self.interrupted:
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
        self.steps.append(Step(self._name(node), result.seconds, f"bound {float(bound):.6g}{shown}: {outcome}"))
        self._report()

    def _solved(self, pipeline: Pipeline, node: _Node) -> Result:
        per_unit = pipeline.ticks.per_unit
        seconds = min(node.seconds, self.left)
        result = solve(
            pipeline,
            time_limit=seconds,
            start=node.start,
            lower_bound=math.ceil(node.bound * per_unit),
            gap=self.gap if self.best is None else 0.0,
            enough=None if self.best is None else math.ceil(self.value * (1 - Fraction(self.gap)) * per_unit),
            **self.search,
        )
        self.spent += seconds if result.limit == "time" else seconds / SLICE
        self.versions.update(result.versions)
        return result

    def _with_least(self, schedule: Schedule, stages: Stages) -> Schedule:
        """The order of a schedule with as few of these stages recomputing as fit, the most expensive left out first."""
        kept = time_order(self._resolved(stages), schedule.order)
        for stage in sorted(stages, key=self._cost, reverse=True):
            try:
                without = time_order(self._resolved(kept.pipeline.recomputing - {stage}), schedule.order)
            except PipelineError:  # not even one microbatch fits
                continue
            if without.within_memory:
                kept = without
        return kept

    def _listed(self, stages: Stages) -> None:
        """Try list scheduling where exactly these stages recompute, once."""
        if stages not in self.tried and self.left > 0:
            self.tried.add(stages)
            for _, schedule in baselines(self._resolved(stages)):
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
        nodes_ = [*self.open[1:], *map(self._entry, nodes)]
        heapq.heapify(nodes_)
        self.open = nodes_

    @property
    def lower(self) -> Fraction | float:
        """No choice of stages has a schedule that takes less."""
        return min(self.open[0][0], self.value) if self.open else self.value if self.steps else 0

    @property
    def closed(self) -> bool:
        """Whether the gap is no larger than asked for."""
        return self.best is not None and self.value - self.lower <= self.gap * self.value

    @property
    def left(self) -> float:
        return self.time_limit - (self.spent if self.deterministic else time.monotonic() - self.begun)

    def _name(self, node: _Node) -> str:
        def listed(stages: Stages) -> str:
            return ",".join(map(str, sorted(stages)))

        parts = [f"{word} {listed(stages)}" for word, stages in (("recompute", node.yes), ("keep", node.no)) if stages]
        return "stages: " + ("; ".join(parts) or "all open")

    def _report(self) -> None:
        if self.progress is not None:
            per_unit = self.pipeline.resolved("all").ticks.per_unit
            value = None if self.best is None else math.ceil(self.value * per_unit)
            self.progress(value, math.floor(self.lower * per_unit) if math.isfinite(self.lower) else 0)

    def result(self, named: tuple[Row, ...], seed: int) -> Result:
        """The answer, its schedule checked; without one, on the pipeline in which every stage recomputes."""
        pipeline = self.pipeline.resolved("all") if self.best is None else self.best.pipeline
        value = None if self.best is None else self.best.objective(self.objective)
        lower = math.floor(self.lower * pipeline.ticks.per_unit) if math.isfinite(self.lower) else 0
        wrong = [] if self.best is None else violations(pipeline, self.best)
        if wrong:
            raise AssertionError(f"the schedule found breaks a rule: {wrong[0].message}")
        reason: Reason = "no-solution" if value is None else "optimal" if self.lower >= self.value else "feasible"
        limit: Limit | None = None
        if reason != "optimal":
            limit = "interrupted" if self.interrupted else "gap" if self.closed else "time"
        nodes = len(self.steps)
        proof = f"{self.proved_by}, whichever stages recompute" if self.proved_by is not None else None
        if nodes > 1:
            proof = f"branch and bound over the stages that recompute ({nodes} nodes)"
        return Result(
            pipeline=pipeline,
            objective=self.objective,
            schedule=self.best,
            reason=reason,
            limit=limit,
            value=value,
            lower_bound=lower,
            proved_by=proof,
            seconds=time.monotonic() - self.begun,
            seed=seed,
            versions=self.versions,
            named=named,
            steps=tuple(self.steps),
        )
