"""What one more unit of memory buys: the best value at each memory limit, every point with its schedule and its bound.

Points inform each other. Less memory never helps, so a lower bound at a limit holds at every smaller one; and a schedule is
valid wherever its peak fits, whatever limit it was found under. A point that its neighbours settle is not solved at all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Unpack

from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.files import document, result_dict
from ppopt.files.model_tree import offload_of, recompute_of
from ppopt.files.result import row_dict
from ppopt.named import Row, rows_of
from ppopt.named.model import Model
from ppopt.pipeline import BEST, CHOOSE, Pipeline, PipelineError, plain
from ppopt.pipeline.choices import problem
from ppopt.pipeline.cutting import tables_of
from ppopt.pipeline.recompute_choices import RecomputeChoices
from ppopt.schedule import Schedule
from ppopt.search import Result, Settings, Ticks, at, solve_closed
from ppopt.search.cutting import PartitionChoice
from ppopt.search.least_memory import least_memory
from ppopt.search.recomputing import RecomputeChoice
from ppopt.search.result import Scope
from ppopt.search.settings import SettingsFields
from ppopt.study.limits import least_scale, limited, rearranged, scale_of
from ppopt.text import number
from ppopt.timing import time_order

POINTS = 24
"""Most points of a frontier whose limits are not given."""
CHOSEN = ("pipeline.partition", "pipeline.recompute")
"""What a pipeline may leave open: each point has its own choice."""
SECONDS = 20.0
"""For each point, where nothing else is said."""


@dataclass(frozen=True)
class Point:
    """The best value at one limit. ``scale`` is the limit, or with limits per device what they are multiplied by."""

    scale: Fraction
    result: Result

    @property
    def limit(self) -> int | float | list[int | float]:
        """The limit in the user's unit: one number, or one per device where they differ."""
        pipeline = self.result.pipeline
        limits = [pipeline.amount(int(most)) for most in _limits(pipeline)]
        return limits[0] if len(set(limits)) == 1 else limits


@dataclass(frozen=True)
class Frontier:
    """Points by ascending limit, from the smallest at which any schedule exists to where more memory buys nothing.

    ``named`` are the named schedules without a limit, each on its own placement; ``shares`` the limits' proportions.
    """

    pipeline: Pipeline
    objective: Objective
    points: tuple[Point, ...]
    named: tuple[Row, ...]
    shares: tuple[Fraction, ...]

    def needed(self, schedule: Schedule) -> Fraction:
        """The smallest scale at which this schedule fits."""
        return scale_of(schedule, self.shares)


def frontier(
    pipeline: Pipeline,
    settings: Settings | None = None,
    *,
    objective: Objective = "makespan",
    limits: Iterable[Fraction | int] | None = None,
    points: int = POINTS,
    chunks: Sequence[int] = (),
    known: Iterable[Schedule] = (),
    progress: Callable[[Point, int], None] = lambda point, found: None,
    **changes: Unpack[SettingsFields],
) -> Frontier:
    """The best value at each memory limit, on this placement; each with its own cut and its own choice of what recomputes, where
    these are open.

    The pipeline's own limit gives the proportions: with one number (or none) all devices have the same limit; with a list,
    each point multiplies it. ``limits`` are the scales wanted (those at which no schedule exists are left out); by default
    they go from the smallest possible to the first at which the value without a limit is reached, in steps of one stage's
    activation, about ``points`` of them at most; the pipeline's own limit is among them where it matters. The time limit of the
    ``settings`` (single fields may be given as keywords; by default 20 seconds) is for each point; Ctrl-C ends all searches.
    ``progress`` gets each new point and how many there are. ``chunks`` are those for which named schedules are shown. ``known``
    are schedules to begin with, such as those found without copies where copies may be made.

    Raises:
        PipelineError: the pipeline leaves its placement, its chunks or its microbatches open.
    """
    settings = dataclasses.replace(settings or Settings(seconds=SECONDS), **changes)
    for key in pipeline.open:
        if key not in CHOSEN:
            raise problem(pipeline, key)
    search_ = _Search(pipeline, objective, chunks, settings, progress)
    for schedule in known:
        search_.begin(schedule)
    scales = search_.chosen(points) if limits is None else sorted({Fraction(limit) for limit in limits})
    scales = [scale for scale in scales if scale >= search_.least]
    search_.fill(scales)
    found = ((scale, search_.settled(scale)) for scale in scales)
    settled = tuple(Point(scale, result) for scale, result in found if result.reason != "infeasible")
    return Frontier(pipeline, objective, settled, search_.named, search_.shares)


def ways(pipeline: Pipeline) -> tuple[Pipeline, ...]:
    """The pipelines of which a frontier is drawn: where activations may be on the host, with that and without."""
    if pipeline.offload is None or pipeline.offload.stages == "none":
        return (pipeline,)
    try:
        offload = dataclasses.replace(pipeline.offload, stages="none")
        return pipeline, pipeline.changed(offload=offload, route_of_microbatch=pipeline.route_of_microbatch)
    except PipelineError:  # its own limit is too low for that
        free = limited(pipeline, None)
        return pipeline, free.changed(offload=offload, route_of_microbatch=pipeline.route_of_microbatch)


class Known(NamedTuple):
    """A schedule with its value, in the user's unit, and the smallest scale at which it fits."""

    value: Fraction
    scale: Fraction
    schedule: Schedule


class _Search:
    def __init__(
        self,
        pipeline: Pipeline,
        objective: Objective,
        chunks: Sequence[int],
        settings: Settings,
        progress: Callable[[Point, int], None],
    ) -> None:
        self._free = limited(pipeline, None)
        self._objective, self._settings, self._progress = objective, settings, progress
        limit = pipeline.memory.limit
        self.shares = limit if isinstance(limit, tuple) else (Fraction(1),) * pipeline.devices
        self._own = Fraction(1) if isinstance(limit, tuple) else limit
        """The scale of the user's own limit."""
        self._sample = _settled(self._free)
        """The pipeline, on the balanced cut, and with all recomputing that can, where that is open."""
        if pipeline.partition == BEST:
            self.least = least_memory(self._free, self.shares, settings.limits())
        else:
            self.least = least_scale(self._sample, self.shares)
        self.named = tuple(rows_of(self._free, chunks))
        self._known: list[Known] = []
        """Of this placement."""
        self._bounds: dict[Fraction | None, tuple[Fraction, str | None]] = {}
        """Scale (``None``: unlimited) -> lower bound and what proves it."""
        self._results: dict[Fraction | None, Result] = {}
        self._interrupted: Result | None = None
        """What Ctrl-C left of a search; the points after it get what is known already."""
        for row in self.named:
            same = row.schedule is not None and row.schedule.pipeline.places == self._free.places
            if same:
                self._learn(row.schedule)  # type: ignore[arg-type]

    def _learn(self, schedule: Schedule) -> None:
        value = Fraction(schedule.objective(self._objective), schedule.pipeline.ticks.per_unit)
        self._known.append(Known(value, scale_of(schedule, self.shares), schedule))

    def begin(self, schedule: Schedule) -> None:
        """Learn a schedule of the pipeline, which may know of no copies where they may be made."""
        own = schedule.pipeline.changed(offload=self._free.offload, route_of_microbatch=schedule.pipeline.route_of_microbatch)
        self._learn(time_order(own, schedule.order))  # its ticks may be others

    def solve(self, scale: Fraction | None) -> Result:
        """The point at ``scale``, from what is known already or from a solver."""
        if scale in self._results:
            return self._results[scale]
        bound, proved_by = self._bound(scale)
        start = self._start(scale)
        shown = limited(self._sample, None)
        if scale is not None and start is not None and start.value <= bound:
            nothing: dict[str, Any] = {"schedule": None, "seconds": 0.0, "steps": (), "limit": None, "proved_by": proved_by}
            ticks = Ticks.of(shown, self._objective, None, 0)
            result = dataclasses.replace(self._results[None], model=Model(shown), ticks=ticks, **nothing)
        elif self._interrupted is not None:
            ticks = Ticks.of(shown, self._objective, None, 0)
            nothing = {"schedule": None, "seconds": 0.0, "steps": (), "proved_by": None, "reason": "no-solution"}
            result = dataclasses.replace(self._interrupted, model=Model(shown), ticks=ticks, **nothing)
        else:
            with at("no limit" if scale is None else f"limit {number(plain(scale))}"):
                result = self._searched(scale, start, bound)
            if result.schedule is not None:
                self._learn(result.schedule)
            if result.limit == "interrupted":
                self._interrupted = result
            own = Fraction(result.ticks.lower_bound, result.ticks.per_unit)
            if own > bound:
                self._bounds[scale] = (own, result.proved_by)
        self._results[scale] = result
        result = self.settled(scale)
        if scale is not None:
            self._progress(Point(scale, result), len(self._results) - 1)
        return result

    def _searched(self, scale: Fraction | None, start: Known | None, bound: Fraction) -> Result:
        """What a search finds at a scale, from a schedule and a bound that are known."""
        free, settings = self._free, self._settings
        pipeline = self._at(free, scale)
        hint = None if start is None else _on(self._at(start.schedule.pipeline, scale), start.schedule)
        if not free.open:
            ticks = math.ceil(bound * pipeline.ticks.per_unit)
            return solve_closed(
                pipeline, self._objective, settings, beside=lambda: rows_of(pipeline), start=hint, lower_bound=ticks
            )
        search: PartitionChoice | RecomputeChoice
        if free.partition == BEST:
            search = PartitionChoice(pipeline, self._objective, settings)
        else:
            search = RecomputeChoice(pipeline, self._objective, settings)
        search.begin(hint, bound)
        return search.go_on(settings.limits().clock, math.inf, None)

    def settled(self, scale: Fraction | None) -> Result:
        """The result at ``scale`` with all that the other points have shown since.

        Raises:
            AssertionError: a schedule violates a rule: a mistake of the program.
        """
        result = self._results[scale]
        bound, proved_by = self._bound(scale)
        best = min((known for known in self._known if scale is None or known.scale <= scale), default=None, key=lambda k: k.value)
        if best is None:
            ticks = max(math.floor(bound * result.ticks.per_unit), result.ticks.lower_bound)
            return self._scoped(dataclasses.replace(result, ticks=result.ticks._replace(lower_bound=ticks)))
        pipeline = self._at(best.schedule.pipeline, scale)
        schedule = _on(pipeline, best.schedule)
        found = violations(pipeline, schedule)
        if found:
            raise AssertionError(f"a schedule of the frontier violates a rule: {found[0].message}")
        optimal = best.value <= bound
        ticks = math.floor(min(bound, best.value) * pipeline.ticks.per_unit)
        return self._scoped(
            dataclasses.replace(
                result,
                model=Model(pipeline),
                schedule=schedule,
                ticks=Ticks.of(pipeline, self._objective, schedule, ticks),
                proved_by=proved_by,
                reason="optimal" if optimal else "feasible",
                limit=None if optimal else result.limit,
            )
        )

    def _scoped(self, result: Result) -> Result:
        """With what its bound holds over, where the pipeline leaves something open."""
        free = self._free
        if not free.open:
            return result
        cut = None if free.layers is None else free.partition
        return dataclasses.replace(
            result, scope=Scope((free.placement,), (free.chunks,), free.recompute, cut), placements=(result,)
        )

    def _at(self, pipeline: Pipeline, scale: Fraction | None) -> Pipeline:
        return limited(pipeline, None if scale is None else tuple(scale * share for share in self.shares))

    def _bound(self, scale: Fraction | None) -> tuple[Fraction, str | None]:
        """The best lower bound that holds at ``scale``: its own, or one with more memory."""
        above = [b for s, b in self._bounds.items() if s is None or (scale is not None and s >= scale)]
        return max(above, key=lambda b: b[0], default=(Fraction(0), None))

    def _start(self, scale: Fraction | None) -> Known | None:
        """The best schedule known that fits; those that do not are rearranged until they do."""
        if scale is not None and self._known:
            over = [known for known in self._known if known.scale > scale]
            for known in sorted(over, key=lambda k: (k.scale, k.value))[:1]:
                with suppress(PipelineError):  # its cut has no room for a microbatch there
                    squeezed = rearranged(self._at(known.schedule.pipeline, scale), known.schedule)
                    if squeezed is not None:
                        self._learn(squeezed)
        fitting = [known for known in self._known if scale is None or known.scale <= scale]
        return min(fitting, key=lambda k: k.value, default=None)

    def chosen(self, points: int) -> list[Fraction]:
        """Scales from the least to the first at which the value without a limit is reached, and the user's own between them."""
        target = _value(self.solve(None))
        step = self._step()
        fast = (known.scale for known in self._known if target is not None and known.value <= target)
        top = min(fast, default=self.least)
        last = max(0, -((self.least - top) // step))
        spread = min(last + 1, max(2, points - (last // points).bit_length()))
        picked = sorted({last * k // max(1, spread - 1) for k in range(spread)})
        self.fill([self.least + k * step for k in picked])

        def reached(k: int) -> bool:
            value = _value(self.solve(self.least + k * step))
            return value is not None and target is not None and value <= target

        high = next((k for k in picked if reached(k)), last)
        low = max((k + 1 for k in picked if k < high), default=0)
        while low < high:
            middle = (low + high) // 2
            picked.append(middle)
            low, high = (low, middle) if reached(middle) else (middle + 1, high)
        scales = {self.least + k * step for k in picked if k < high} | {self.least + high * step}
        return sorted(scales | {own for own in (self._own,) if own is not None and self.least < own < max(scales)})

    def _step(self) -> Fraction:
        """One stage's activation, where it is the smallest part of a limit."""
        amounts = self._sample.amounts
        steps = [
            Fraction(int(amounts.activation[r, s]), amounts.per_unit) / self.shares[device]
            for r, route in enumerate(self._sample.backward_routes or self._sample.routes)
            for s, device in enumerate(route)
            if self.shares[device] and amounts.activation[r, s]
        ]
        return min(steps, default=Fraction(1))

    def fill(self, scales: Sequence[Fraction]) -> None:
        """Solve the ends, then between them wherever the values differ."""
        if None not in self._results:
            self.solve(None)

        def between(low: int, high: int) -> None:
            if high - low < 2:
                return
            middle = (low + high) // 2
            self.solve(scales[middle])
            between(low, middle)
            between(middle, high)

        if scales:
            self.solve(scales[-1])
            self.solve(scales[0])
            between(0, len(scales) - 1)


def frontier_dict(frontiers: Sequence[Frontier]) -> dict[str, Any]:
    """The frontiers as the tree of a JSON file: points with limit, result, schedule and metrics, the largest limit last."""
    points = []
    for line in frontiers:
        for point in line.points:
            tree = result_dict(point.result)
            where = {"limit": point.limit, "placement": line.pipeline.placement, "chunks": line.pipeline.chunks}
            where |= choices(line.pipeline, point.result.pipeline)
            if (offload := point.result.pipeline.offload) is not None:
                where["offload"] = offload_of(offload.stages)
            points.append((point.scale, {**where, **{key: tree[key] for key in ("result", "metrics", "schedule")}}))
    points.sort(key=lambda entry: entry[0])
    first = frontiers[0]
    free = document(Model(limited(first.pipeline, None)))
    rows = [row_dict(row) for row in first.named]
    return {
        **{key: free[key] for key in ("ppopt", "format", "model")},
        "objective": first.objective,
        "points": [tree for _, tree in points],
        "named": rows,
    }


def choices(asked: Pipeline, found: Pipeline) -> dict[str, Any]:
    """The layers of each stage, and what recomputes where that was open."""
    cut = {} if found.layers is None else {"partition": list(found.counts)}
    chosen = found.recompute if found.layers is None else tables_of(found)
    return {**cut, **({"recompute": recompute_of(chosen)} if asked.recompute == CHOOSE else {})}


def _settled(pipeline: Pipeline) -> Pipeline:
    """A pipeline without a limit on the balanced cut, and with all recomputing that can, where these are open."""
    cut = pipeline.cut()
    return RecomputeChoices(cut).resolved(RecomputeChoices(cut).highest) if cut.recompute == CHOOSE else cut


def _value(result: Result) -> Fraction | None:
    return None if result.ticks.value is None else Fraction(result.ticks.value, result.ticks.per_unit)


def _on(pipeline: Pipeline, schedule: Schedule) -> Schedule:
    return Schedule(pipeline, schedule.order, schedule.start, schedule.transfers, schedule.copies)


def _limits(pipeline: Pipeline) -> list[int]:
    limit = pipeline.amounts.limit
    return [] if limit is None else limit.tolist()
