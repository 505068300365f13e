"""The partition left open, and maybe what recomputes, for an order that is settled: that of a runtime.

Two problems take turns. That over the cuts (:class:`~ppopt.bounds.order_cuts.OrderCuts`) gives the cut with the least bound; the
order on that cut, with as little recomputing as fits the memory, has a longest path, which bounds every other cut as well
(:mod:`ppopt.bounds.paths`), and that one exactly. For the device span it has paths that lead round some devices. What a device
holds depends on the order alone, so that it is part of the problem over the cuts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from ppopt.bounds.certificates import Certificate, plain_certificates
from ppopt.bounds.paths import longest_path, span_certificates
from ppopt.bounds.ways import Way
from ppopt.clock import Clock, Limits
from ppopt.constraints import Word
from ppopt.heuristics import order_of
from ppopt.interrupt import noting, uninterrupted
from ppopt.layouts.runnable import Policy, mtp_of
from ppopt.named import Row, Table
from ppopt.named.model import Model
from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, Pipeline, PipelineError
from ppopt.pipeline.layer_times import fused_times_of_layers, work_of_layers
from ppopt.pipeline.partitions import BEST, Counts
from ppopt.pipeline.parts import TooFine
from ppopt.schedule import Objective, Order, Schedule
from ppopt.search import strategies, tuning
from ppopt.search.choices import rows_in_time
from ppopt.search.closed import check_found, solve_closed
from ppopt.search.cut_ticks import most_ticks, scale_of_amounts
from ppopt.search.result import Limit, Reason, Result, Ticks
from ppopt.search.settings import Settings
from ppopt.search.step import Taken
from ppopt.search.whereabouts import at
from ppopt.timing import time_order
from ppopt.timing.paths import shortest_spans

Time = Fraction | float


@dataclass
class FixedOrder:
    """The best cut, and the best way to recompute, for the order that ``words`` pin down on a placement of one route.

    ``policy`` says what recomputes on each cut. The search can go on where it stopped (:meth:`go_on`). Where transfers hold links
    their order is open: then each cut is solved.
    """

    pipeline: Pipeline
    objective: Objective
    settings: Settings
    words_of: Callable[[Pipeline], tuple[Word, ...]]
    policy: Policy
    beside: Callable[[], Sequence[Row]] = lambda: ()
    result: Result | None = None
    best: Schedule | None = None
    value: Time = math.inf
    enough: Time = math.inf
    bound: Time = Fraction(0)
    """No cut that is left has less; infinite once none is left."""
    open_bounds: dict[Counts, Fraction] = field(default_factory=dict)
    """Of cuts whose best schedule is not settled."""
    looked: set[Counts] = field(default_factory=set)
    steps: list[Taken] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    named: tuple[Row, ...] | None = None
    seconds: float = 0.0
    progress: Callable[[Fraction | None, Fraction], None] | None = None

    def __post_init__(self) -> None:
        self._clock = Clock(0)
        memory = replace(self.pipeline.memory, limit=None)
        self._free = self.pipeline.changed(memory=memory, recompute="none")
        sample = self._free.cut()
        self.words = self.words_of(sample)
        order = order_of(sample, self.words)
        assert order is not None, "the order of a runtime is settled"
        self.order: Order = order
        self._settled = not sample.lines
        """Whether a cut has one schedule, or one that is best whenever its devices begin."""
        self.bound = self.floor(self.objective)
        self._cuts: _Cuts | None = None

    def floor(self, objective: Objective) -> Fraction:
        """A quick lower bound: the devices share the work of all layers."""
        layers, pipeline = self.pipeline.layers, self.pipeline
        assert layers is not None
        return sum(work_of_layers(layers, "none"), Fraction(0)) * Fraction(pipeline.microbatches, pipeline.devices)

    def go_on(self, clock: Clock, enough: Time, progress: Callable[[Fraction | None, Fraction], None] | None) -> Result:
        """Search until the clock is over, or until no cut has less than ``enough``."""
        self.progress, self.enough, self._clock = progress, enough, clock
        begun = time.monotonic()
        try:
            with noting():
                if self.named is None:
                    self.named = rows_in_time(self.beside, self.pipeline, clock)
                    self._begin()
                while not self.closed and not clock.over and self.bound < min(self.enough, self.value):
                    self._next()
        except KeyboardInterrupt:
            clock.interrupt()
        self.seconds += time.monotonic() - begun
        self.result = self._result()
        return self.result

    @property
    def lower(self) -> Time:
        """No cut has a schedule that takes less."""
        return min(self.bound, self.value, *self.open_bounds.values())

    @property
    def closed(self) -> bool:
        """Whether the gap is no larger than asked for."""
        return self.best is not None and self.value - self.lower <= Fraction(self.settings.gap) * self.value

    # --- the search ---

    def _begin(self) -> None:
        """The cut that is settled; or the even and the balanced one."""
        if self.pipeline.partition != BEST:
            self._look(self._free.counts)
            self.bound = math.inf
            return
        self._cuts = _Cuts(self)
        for name in ("even", "balanced"):
            try:
                counts = self._free.changed(partition=name).counts
                if self._possible(counts):
                    self._look(counts)
            except TooFine:
                raise
            except PipelineError as error:
                self.steps.append(Taken(f"{name} cut", 0.0, str(error)))

    def _possible(self, counts: Counts) -> bool:
        """Whether the layers of multi-token prediction are on one of the last stages of the devices, as Megatron has them."""
        layers, pipeline = self.pipeline.layers, self.pipeline
        assert layers is not None
        stage_of = [stage for stage, count in enumerate(counts) for _ in range(count)]
        stages = {stage_of[place] for place in mtp_of(layers)}
        return not stages or (len(stages) == 1 and min(stages) >= (pipeline.chunks - 1) * pipeline.devices)

    def _next(self) -> None:
        """Look at the cut with the least bound of those that are left."""
        assert self._cuts is not None
        most = min(self.value, self.enough)
        clock = self._clock.slice(max(strategies.OVER_CUTS * self.settings.seconds, 1.0))
        limits = Limits(clock, 0.0, self.settings.workers, self.settings.seed)
        found, self.bound = self._cuts.least(limits, self.bound, most, None if self.best is None else self.best.pipeline.counts)
        self._report()
        if found is not None:
            self._look(found)

    def _look(self, counts: Counts) -> None:
        """The order on a cut, with the least that has to recompute."""
        if counts in self.looked:
            return
        self.looked.add(counts)
        begun = time.monotonic()
        schedule = self._least(counts)
        if schedule is None:
            outcome = "does not fit the memory"
            if self._cuts is not None:
                self._cuts.model.leave_out(counts)
        elif self._settled:
            if self._cuts is not None:
                self._cuts.learn(schedule)
                if self.objective == "span" or not self._cuts.exact:  # in whole ticks it may be more than the paths say
                    self._cuts.model.leave_out(counts)
            best = schedule if self.objective == "makespan" else shortest_spans(schedule)
            self._found(best)
            outcome = f"best {best.pipeline.time(best.objective(self.objective))}"
        else:
            with at(f"cut {','.join(map(str, counts))}"):
                outcome = self._solve(schedule)
        self.steps.append(Taken(f"cut {','.join(map(str, counts))}", time.monotonic() - begun, outcome))
        self._report()

    def _least(self, counts: Counts) -> Schedule | None:
        """The order on a cut with as little recomputing as fits the memory; ``None``: nothing fits, however much recomputes."""
        layers = self.pipeline.layers
        assert layers is not None
        low, high = 0, max(counts) if self.policy.block else 0
        best = self._timed(counts, high if self.policy.block else None)
        if best is None or not best.within_memory:
            return None
        while low < high:  # less recomputing holds more
            middle = (low + high) // 2
            found = self._timed(counts, middle)
            if found is not None and found.within_memory:
                best, high = found, middle
            else:
                low = middle + 1
        return best

    def _timed(self, counts: Counts, most: int | None) -> Schedule | None:
        pipeline = self.pipeline
        self._clock.charge(tuning.SCHEDULED * self.order.index.computations)
        try:
            tables = self.policy.tables(pipeline.layers, counts, most)  # type: ignore[arg-type]
            return time_order(pipeline.changed(partition=counts, recompute=tables), self.order)
        except TooFine:
            raise
        except PipelineError:
            return None  # there is no room for a microbatch

    def _solve(self, schedule: Schedule) -> str:
        """The best schedule of a cut that has several with this order."""
        pipeline, most = schedule.pipeline, min(self.value, self.enough)
        per_unit = pipeline.ticks.per_unit
        result = solve_closed(
            pipeline,
            self.objective,
            replace(self.settings, gap=0.0),
            words=self.words_of(pipeline),
            enough=math.ceil(most * per_unit) if isinstance(most, Fraction) else None,
            clock=self._clock.slice(max(1.0, self._clock.left / 4)),
        )
        self.versions.update(result.versions)
        if result.schedule is not None:
            self._found(result.schedule)
        bound = Fraction(result.ticks.lower_bound, per_unit)
        if result.reason not in ("optimal", "infeasible") and bound < most:
            self.open_bounds[pipeline.counts] = bound
        if self._cuts is not None:
            self._cuts.model.leave_out(pipeline.counts)
            links = pipeline.links.uncontended()
            alone = pipeline.changed(links=links, route_of_microbatch=pipeline.route_of_microbatch)
            self._cuts.learn(time_order(alone, self.order))
        return "nothing found" if result.ticks.value is None else f"best {pipeline.time(result.ticks.value)}"

    def _found(self, schedule: Schedule) -> None:
        value = Fraction(schedule.objective(self.objective), schedule.pipeline.ticks.per_unit)
        if value < self.value:
            self.best, self.value = schedule, value

    def _report(self) -> None:
        if self.progress is not None:
            lower = self.lower
            self.progress(Fraction(self.value) if self.best is not None else None, Fraction(lower if lower < math.inf else 0))

    # --- the answer ---

    def _result(self) -> Result:
        """The answer, its schedule checked; without one, on the balanced cut."""
        pipeline = self._free.cut() if self.best is None else self.best.pipeline
        lower = math.floor(self.lower * pipeline.ticks.per_unit) if self.lower < math.inf else 0
        words = self.words if self.best is None else self.words_of(pipeline)
        if self.best is not None:
            check_found(self.best, words)
        reason: Reason = "no-solution"
        if self.best is not None:
            reason = "optimal" if self.lower >= self.value else "feasible"
        elif self.bound == math.inf and not self.open_bounds and self.enough == math.inf:
            reason = "infeasible"
        limit: Limit | None = None
        if reason in ("feasible", "no-solution") and self.lower < self.enough:
            limit = "interrupted" if self._clock.interrupted else "gap" if self.closed else "time"
        cuts = math.comb(len(self.pipeline.layers or ()) - 1, pipeline.stages - 1) if self.pipeline.partition == BEST else 1
        return Result(
            model=Model(pipeline),
            objective=self.objective,
            schedule=self.best,
            reason=reason,
            limit=limit,
            ticks=Ticks.of(pipeline, self.objective, self.best, lower),
            proved_by=f"paths of its order over {cuts} cuts ({len(self.looked)} timed)" if cuts > 1 else "the order itself",
            seconds=self.seconds,
            seed=self.settings.seed,
            versions=self.versions,
            named=Table(self.named or (), self.pipeline),
            steps=tuple(self.steps),
            binding=words,
        )


class _Cuts:
    """What is known of all cuts that are left, in ticks and units of their own."""

    def __init__(self, search: FixedOrder) -> None:
        with uninterrupted():  # the solver is imported when it is used
            from ppopt.bounds.order_cuts import OrderCuts
        self.pipeline, self.order, self.objective, policy = search.pipeline, search.order, search.objective, search.policy
        layers = self.pipeline.layers
        assert layers is not None
        again = [(Fraction(0), Fraction(0))] * len(layers)
        for place, group in enumerate(layers.group_of):
            if policy.counted(layers, group):
                level = layers.level_of(group, policy.level or "")
                assert level is not None
                again[place] = (level.time, level.saved)
        times = fused_times_of_layers(layers, "none")
        unit = self._unit_costs(search._free)
        ticks = unit.ticks
        fixed = [Fraction(int(x), ticks.per_unit) for x in (*ticks.lead.flat, *ticks.tail.flat, *ticks.lag.flat)]
        halves = [x for name in ("backward_input", "backward_weight") for x in layers.each(name) if x is not None]
        numbers = (*(x for row in times for x in row), *(t for t, _ in again), *halves, *fixed)
        whole, most = math.lcm(*(x.denominator for x in numbers)), most_ticks(self.pipeline, numbers)
        self.exact = whole <= most
        """Whether no time is rounded; where one is, all are rounded down."""
        self.per_unit = min(whole, most)
        """If exact, no cut has coarser ticks: what is rounded up to these is below what is rounded up there."""
        forward, backward, longer = (
            [int(value * self.per_unit) for value in of] for of in (*zip(*times, strict=True), [t for t, _ in again])
        )
        if not policy.block:
            backward = [a + b for a, b in zip(backward, longer, strict=True)]
        self.model = OrderCuts(forward, backward, unit.stages)
        own = mtp_of(layers)
        if own:
            self.model.keep_together(own, (self.pipeline.chunks - 1) * self.pipeline.devices)
        self._hold(policy, longer, [s for _, s in again])
        self._known: set[Certificate] = set()
        for certificate in plain_certificates(unit, search.objective):
            self._learn(certificate, unit.ticks.per_unit)

    def _unit_costs(self, free: Pipeline) -> Pipeline:
        """A pipeline of this placement whose operations all take the same, with fused backwards."""
        costs = Costs(per="stage", forward=1, backward=1, optimizer=free.costs.optimizer)
        return free.cut().changed(costs=costs, route_of_microbatch=free.route_of_microbatch)

    def _hold(self, policy: Policy, longer: Sequence[int], saved: Sequence[Fraction]) -> None:
        """What recomputes; and every device holds at once no more than it has room for."""
        pipeline, layers, memory = self.pipeline, self.pipeline.layers, self.pipeline.memory
        assert layers is not None
        activation, weights = ([x or Fraction(0) for x in layers.each(name)] for name in ("activation", "weights"))
        held = [activation[g] for g in layers.group_of]
        always = [weights[g] for g in layers.group_of]
        if not policy.block:
            held = [a - b for a, b in zip(held, saved, strict=True)]
        limits, static = (
            value if isinstance(value, tuple) else (value or Fraction(0),) * pipeline.devices
            for value in (memory.limit, memory.static)
        )
        of_layers = (*held, *always, *saved)
        scale = scale_of_amounts(of_layers, (*limits, *static), pipeline.microbatches)  # rounded, so that more fits
        if policy.block:
            self.model.recompute_first(longer, [math.ceil(value * scale) for value in saved])
        if memory.limit is None:
            return
        ends = [self.model.ends([math.floor(value * scale) for value in of]) for of in (held, always)]
        for device in range(pipeline.devices):
            for counts in at_once(self.order, device):
                self.model.hold_at_once(ends[0], ends[1], counts, math.ceil((limits[device] - static[device]) * scale))

    def learn(self, schedule: Schedule) -> None:
        """Learn the longest path of the order on a cut, or those that make its device span as long as it is."""
        found = [longest_path(schedule)] if self.objective == "makespan" else span_certificates(schedule)
        for certificate in found:
            self._learn(certificate, schedule.pipeline.ticks.per_unit)

    def _learn(self, certificate: Certificate, per_unit: int) -> None:
        def scaled(way: Way) -> Way:
            constant = Fraction(way.constant * self.per_unit, per_unit)
            assert constant.denominator == 1 or not self.exact
            return replace(way, constant=math.floor(constant))

        parts = [tuple(map(scaled, side)) for side in (certificate.heads, (certificate.work,), certificate.tails)]
        own = Certificate(parts[0], parts[1][0], parts[2], certificate.spans)
        if own not in self._known:
            self._known.add(own)
            self.model.learn(own)

    def least(self, limits: Limits, bound: Time, below: Time, hint: Any) -> tuple[Counts | None, Time]:
        """A cut of little bound, below that much, if one was found; and what no cut that is left is below."""
        upper = math.ceil(below * self.per_unit) - 1 if below < math.inf else 2**49
        lower = math.ceil(bound * self.per_unit) if self.exact else math.floor(bound * self.per_unit)
        found = self.model.least(limits, lower, upper, hint)
        if found.none and below == math.inf:
            return None, math.inf
        return found.counts, max(bound, Fraction(found.bound, self.per_unit))


def at_once(order: Order, device: int) -> list[dict[int, int]]:
    """How many microbatches of each of its stages a device holds at once under an order; those that no other time exceeds."""
    now: dict[int, int] = {}
    seen: dict[tuple[tuple[int, int], ...], None] = {}
    for op in order.ops(device):
        assert isinstance(op, Op)
        now[op.stage] = now.get(op.stage, 0) + (1 if op.kind == Kind.F else -1)
        if op.kind == Kind.F:
            seen[tuple(sorted(now.items()))] = None
    found: list[dict[int, int]] = []
    for counts in map(dict, seen):
        if not any(all(n <= other.get(s, 0) for s, n in counts.items()) and other != counts for other in map(dict, seen)):
            found.append(counts)
    return found
