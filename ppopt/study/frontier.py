"""What one more unit of memory buys: the best value at each memory limit, every point with its schedule and its bound.

Points inform each other. Less memory never helps, so a lower bound at a limit holds at every smaller one; and a schedule is
valid wherever its peak fits, whatever limit it was found under. A point that its neighbours settle is not solved at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Unpack

import numpy as np

from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.constraints import rules_of
from ppopt.files import document, result_dict
from ppopt.files.result import row_dict
from ppopt.heuristics import Jobs, Stuck, run_jobs
from ppopt.named import Row, rows_of
from ppopt.named.model import Model
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule, halves
from ppopt.search import Result, Settings, Ticks, solve_closed
from ppopt.search.settings import SettingsFields
from ppopt.timing.timed import time_order

POINTS = 24
"""Most points of a frontier whose limits are not given."""
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


def scale_of(schedule: Schedule, shares: Sequence[Fraction]) -> Fraction:
    """The smallest scale of limits with these proportions at which ``schedule`` fits."""
    per_unit = schedule.pipeline.amounts.per_unit
    return max(
        (Fraction(peak, per_unit) / share for peak, share in zip(schedule.peak_memory, shares, strict=True) if share),
        default=Fraction(0),
    )


def frontier(
    pipeline: Pipeline,
    settings: Settings | None = None,
    *,
    objective: Objective = "makespan",
    limits: Iterable[Fraction | int] | None = None,
    points: int = POINTS,
    chunks: Sequence[int] = (),
    progress: Callable[[Point, int], None] = lambda point, found: None,
    **changes: Unpack[SettingsFields],
) -> Frontier:
    """The best value at each memory limit, on this placement.

    The pipeline's own limit gives the proportions: with one number (or none) all devices have the same limit; with a list,
    each point multiplies it. ``limits`` are the scales wanted (those at which no schedule exists are left out); by default
    they go from the smallest possible to the first at which the value without a limit is reached, in steps of one stage's
    activation, about ``points`` of them at most; the pipeline's own limit is among them where it matters. The time limit of the
    ``settings`` (single fields may be given as keywords; by default 20 seconds) is for each point; Ctrl-C ends all searches.
    ``progress`` gets each new point and how many there are. ``chunks`` are those for which named schedules are shown.

    Raises:
        PipelineError: the pipeline leaves something open.
    """
    settings = dataclasses.replace(settings or Settings(seconds=SECONDS), **changes)
    search_ = _Search(pipeline.settled(), objective, chunks, settings, progress)
    scales = search_.chosen(points) if limits is None else sorted({Fraction(limit) for limit in limits})
    scales = [scale for scale in scales if scale >= search_.least]
    search_.fill(scales)
    settled = tuple(Point(scale, search_.settled(scale)) for scale in scales)
    return Frontier(pipeline, objective, settled, search_.named, search_.shares)


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
        self.least = least_scale(self._free, self.shares)
        self.named = tuple(rows_of(self._free, chunks))
        self._known: list[tuple[int, Fraction, Schedule]] = []
        """Value, the scale it needs, and the schedule; on this placement."""
        self._bounds: dict[Fraction | None, tuple[int, str | None]] = {}
        """Scale (``None``: unlimited) -> lower bound and what proves it."""
        self._results: dict[Fraction | None, Result] = {}
        self._interrupted: Result | None = None
        """What Ctrl-C left of a search; the points after it get what is known already."""
        for row in self.named:
            same = row.schedule is not None and row.schedule.pipeline.routes == self._free.routes
            if same:
                self._learn(row.schedule)  # type: ignore[arg-type]

    def _learn(self, schedule: Schedule) -> None:
        self._known.append((schedule.objective(self._objective), scale_of(schedule, self.shares), schedule))

    def solve(self, scale: Fraction | None) -> Result:
        """The point at ``scale``, from what is known already or from a solver."""
        if scale in self._results:
            return self._results[scale]
        pipeline = self._at(scale)
        bound, proved_by = self._bound(scale)
        start = self._start(scale)
        if scale is not None and start is not None and start[0] <= bound:
            template = self._results[None]
            ticks = Ticks.of(pipeline, self._objective, None, bound)
            nothing: dict[str, Any] = {"schedule": None, "seconds": 0.0, "steps": (), "limit": None, "proved_by": proved_by}
            result = dataclasses.replace(template, model=Model(pipeline), ticks=ticks, **nothing)
        elif self._interrupted is not None:
            ticks = Ticks.of(pipeline, self._objective, None, 0)
            nothing = {"schedule": None, "seconds": 0.0, "steps": (), "proved_by": None, "reason": "no-solution"}
            result = dataclasses.replace(self._interrupted, model=Model(pipeline), ticks=ticks, **nothing)
        else:
            hint = None if start is None else _on(pipeline, start[2])
            result = solve_closed(
                pipeline, self._objective, self._settings, beside=lambda: rows_of(pipeline), start=hint, lower_bound=bound
            )
            if result.schedule is not None:
                self._learn(result.schedule)
            if result.limit == "interrupted":
                self._interrupted = result
            if result.ticks.lower_bound > bound:
                self._bounds[scale] = (result.ticks.lower_bound, result.proved_by)
        self._results[scale] = result
        result = self.settled(scale)
        if scale is not None:
            self._progress(Point(scale, result), len(self._results) - 1)
        return result

    def settled(self, scale: Fraction | None) -> Result:
        """The result at ``scale`` with all that the other points have shown since.

        Raises:
            AssertionError: a schedule violates a rule: a mistake of the program.
        """
        result, pipeline = self._results[scale], self._at(scale)
        bound, proved_by = self._bound(scale)
        best = min((known for known in self._known if scale is None or known[1] <= scale), default=None, key=lambda k: k[0])
        if best is None:
            return dataclasses.replace(result, ticks=result.ticks._replace(lower_bound=max(bound, result.ticks.lower_bound)))
        schedule = _on(pipeline, best[2])
        found = violations(pipeline, schedule)
        if found:
            raise AssertionError(f"a schedule of the frontier violates a rule: {found[0].message}")
        optimal = best[0] <= bound
        return dataclasses.replace(
            result,
            schedule=schedule,
            ticks=Ticks.of(pipeline, self._objective, schedule, bound),
            proved_by=proved_by,
            reason="optimal" if optimal else "feasible",
            limit=None if optimal else result.limit,
        )

    def _at(self, scale: Fraction | None) -> Pipeline:
        return self._free if scale is None else limited(self._free, tuple(scale * share for share in self.shares))

    def _bound(self, scale: Fraction | None) -> tuple[int, str | None]:
        """The best lower bound that holds at ``scale``: its own, or one with more memory."""
        above = [b for s, b in self._bounds.items() if s is None or (scale is not None and s >= scale)]
        return max(above, key=lambda b: b[0], default=(0, None))

    def _start(self, scale: Fraction | None) -> tuple[int, Fraction, Schedule] | None:
        """The best schedule known that fits; those that do not are rearranged until they do."""
        if scale is not None and self._known:
            over = [known for known in self._known if known[1] > scale]
            for known in sorted(over, key=lambda k: (k[1], k[0]))[:1]:
                squeezed = rearranged(self._at(scale), known[2])
                if squeezed is not None:
                    self._learn(squeezed)
        fitting = [known for known in self._known if scale is None or known[1] <= scale]
        return min(fitting, key=lambda k: k[0], default=None)

    def chosen(self, points: int) -> list[Fraction]:
        """Scales from the least to the first at which the value without a limit is reached, and the user's own between them."""
        target = self.solve(None).ticks.value
        step = self._step()
        top = min((need for value, need, _ in self._known if target is not None and value <= target), default=self.least)
        last = max(0, -((self.least - top) // step))
        spread = min(last + 1, max(2, points - (last // points).bit_length()))
        picked = sorted({last * k // max(1, spread - 1) for k in range(spread)})
        self.fill([self.least + k * step for k in picked])

        def reached(k: int) -> bool:
            value = self.solve(self.least + k * step).ticks.value
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
        amounts = self._free.amounts
        steps = [
            Fraction(int(amounts.activation[r, s]), amounts.per_unit) / self.shares[device]
            for r, route in enumerate(self._free.routes)
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


def limited(pipeline: Pipeline, limits: tuple[Fraction, ...] | None) -> Pipeline:
    """The pipeline with other limits."""
    return pipeline.changed(
        memory=dataclasses.replace(pipeline.memory, limit=limits), route_of_microbatch=pipeline.route_of_microbatch
    )


def least_scale(pipeline: Pipeline, shares: Sequence[Fraction]) -> Fraction:
    """The smallest scale at which any schedule exists: one microbatch at a time, with all its activations."""
    amounts = pipeline.amounts
    needs = []
    for device, share in enumerate(shares):
        held = [
            sum(int(amounts.activation[r, s]) for s in range(pipeline.stages) if route[s] == device)
            for r, route in enumerate(pipeline.routes)
            if len(pipeline.microbatches_of[r])
        ]
        need = Fraction(max(held) + int(amounts.static[device]), amounts.per_unit)
        if need and share:
            needs.append(need / share)
    return max(needs, default=Fraction(0))


def rearranged(pipeline: Pipeline, schedule: Schedule) -> Schedule | None:
    """The schedule's operations, started in its order as far as ``pipeline``'s limits allow; ``None`` where they get stuck."""
    numbers = np.concatenate(schedule.order.rows)
    first, second = halves(pipeline.index, numbers)
    if (second >= 0).any():
        return None  # pairs are not taken apart
    jobs = Jobs(pipeline, rules_of(pipeline), run=np.sort(first))
    start = dict(zip(numbers.tolist(), np.concatenate(schedule.start).tolist(), strict=True))
    rank = np.array([start[number] for number in jobs.numbers.tolist()], dtype=np.int64)
    try:
        return time_order(pipeline, run_jobs(jobs, (rank,)))
    except Stuck:
        return None


def frontier_dict(frontiers: Sequence[Frontier]) -> dict[str, Any]:
    """The frontiers as the tree of a JSON file: points with limit, result, schedule and metrics, the largest limit last."""
    points = []
    for line in frontiers:
        for point in line.points:
            tree = result_dict(point.result)
            where = {"limit": point.limit, "placement": line.pipeline.placement, "chunks": line.pipeline.chunks}
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


def _on(pipeline: Pipeline, schedule: Schedule) -> Schedule:
    return Schedule(pipeline, schedule.order, schedule.start, schedule.transfers)


def _limits(pipeline: Pipeline) -> list[int]:
    limit = pipeline.amounts.limit
    return [] if limit is None else limit.tolist()
