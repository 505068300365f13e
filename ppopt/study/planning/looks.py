"""A first look at a combination on one placement: named schedules on a cut whose bound is small."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

from ppopt.clock import Clock
from ppopt.heuristics import Stuck, each_baseline
from ppopt.layouts.runnable import Policy, policies_of
from ppopt.named import Definition, Restriction, find
from ppopt.named.recomputing import best_of
from ppopt.named.registry import each
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError, routes_of
from ppopt.pipeline.recompute_choices import RecomputeChoices
from ppopt.pipeline.runtimes import TORCH
from ppopt.schedule import Schedule
from ppopt.search import tuning
from ppopt.search.running import ORDERS
from ppopt.study.planning.floors import Floors
from ppopt.study.planning.space import Case

Counts = tuple[int, ...]
ROUNDS = 40
"""Moves of a cut at most, from the one that is nearly even on. Measured: of Llama 3 70B none takes more than 25."""
LEAST = 1e-3
"""A move is made where it lowers the bound by that fraction: nearly even cuts have shorter ways at both ends."""
NEAR = 8
"""Cuts near one that are tried, those with the smallest bound first. Measured: more find nothing better on Llama 3 70B."""
LISTED = 3
"""List schedules that are made where no named schedule fits. Not measured."""
FEW = 4
"""Microbatches for each device, about, on which it is decided what recomputes: then memory is as full as it will be. Measured on
DeepSeek-V3 with 480 microbatches: a tenth of the time that all of them take."""


@dataclass(frozen=True)
class Found:
    """A schedule that fits, and where it is from: the name of a named schedule, or ``ppopt`` where it was searched for."""

    name: str
    schedule: Schedule

    @property
    def value(self) -> Fraction:
        """Its step time in ms."""
        return Fraction(self.schedule.makespan, self.schedule.pipeline.ticks.per_unit)


def first_cut(floors: Floors, placement: str, chunks: int) -> Counts | None:
    """A cut with a small bound, from a nearly even one on; ``None``: none was found in which a microbatch fits."""
    device_of = routes_of(placement, floors.devices, chunks)[0]
    counts = _even(floors.layers, len(device_of))
    best = floors.of_cut(counts, device_of)
    for _ in range(ROUNDS):
        near = min(((floors.of_cut(other, device_of), other) for other in _moved(counts)), default=(math.inf, counts))
        if near[0] >= best * (1 - LEAST):
            break
        best, counts = near
    return counts if best < math.inf else None


def _even(layers: int, stages: int) -> Counts:
    """About as many layers for each stage; the first and the last one have one more, which are mostly no decoder layers."""
    share, more = divmod(layers, stages)
    order = sorted(range(stages), key=lambda stage: min(stage, stages - 1 - stage))
    counts = [share] * stages
    for stage in order[:more]:
        counts[stage] += 1
    return tuple(counts)


def _moved(counts: Counts) -> Iterator[Counts]:
    """A layer less here, and one more there, one or two or half of all stages on."""
    for source, count in enumerate(counts):
        for target in {source + by for by in (-1, 1, -2, 2, len(counts) // 2, -(len(counts) // 2))}:
            if count > 1 and 0 <= target < len(counts) and source != target:
                moved = list(counts)
                moved[source] -= 1
                moved[target] += 1
                yield tuple(moved)


def look(case: Case, placement: str, chunks: int, counts: Counts | None, clock: Clock) -> Found | None:
    """The best named schedule that fits on a cut, by default :func:`first_cut`; ``None``: none was found.

    Each is tried with few microbatches; then the most promising one that fits is made with all, of equally fast ones that which
    holds least.
    """
    counts = counts or first_cut(case.floors, placement, chunks)
    pipeline = None if counts is None else _at(case, placement, chunks, counts)
    if pipeline is None:
        return None
    tried: list[tuple[_Sample, Definition]] = []
    for definition in definitions(placement, chunks, case.question.search.runtime):
        if clock.over and tried:
            break
        sample = _sampled(definition, pipeline, clock, case.question.search.runtime)
        if sample is not None:
            tried.append((sample, definition))
    for sample, definition in sorted(tried, key=lambda one: one[0][:2]):
        found = _made(definition, pipeline, sample.recompute, clock)
        if found is not None:
            return found
    return _listed(pipeline, clock) if case.question.search.runtime in ("", TORCH) else None


def _listed(pipeline: Pipeline, clock: Clock) -> Found | None:
    """A list schedule with as much recomputing as there can be: it keeps the memory limit where named schedules do not."""
    found: list[Found] = []
    try:
        settled = pipeline
        if pipeline.recompute == CHOOSE:
            choices = RecomputeChoices(pipeline)
            settled = choices.resolved(choices.highest)
        for _, schedule in islice(each_baseline(settled), LISTED):
            clock.charge(tuning.SCHEDULED * settled.index.computations)
            found += [Found("ppopt", schedule)] if _fits(schedule, pipeline) else []
            if clock.over:
                break
    except (PipelineError, Stuck):
        pass
    return min(found, key=lambda one: one.value, default=None)


def nearby(case: Case, found: Found, clock: Clock) -> Found:
    """The same named schedule on cuts near that of ``found``, from one to the next as long as that is better."""
    device_of, floors, definition = found.schedule.pipeline.routes[0], case.floors, find(found.name)
    tried = {found.schedule.pipeline.counts}
    runtime = case.question.search.runtime
    while not clock.over:
        value = float(found.value)
        near = [
            (floors.of_cut(other, device_of), other) for other in _moved(found.schedule.pipeline.counts) if other not in tried
        ]
        better = None
        for bound, counts in sorted(near)[:NEAR]:
            tried.add(counts)
            if bound >= value or clock.over:
                break
            pipeline = _at(case, found.schedule.pipeline.placement, found.schedule.pipeline.chunks, counts)
            sample = None if pipeline is None else _sampled(definition, pipeline, clock, runtime)
            if sample is None or pipeline is None or sample.value >= value:
                continue
            other = _made(definition, pipeline, sample.recompute, clock)
            if other is not None and other.value < found.value:
                better = other
                break
        if better is None:
            break
        found = better
    return found


def _at(case: Case, placement: str, chunks: int, counts: Counts) -> Pipeline | None:
    try:
        return case.pipeline(placement, chunks, partition=counts)
    except PipelineError:
        return None


def definitions(placement: str, chunks: int, runtime: str = "") -> list[Definition]:
    """The named schedules of a placement, or that which a runtime has there."""
    own = ORDERS.get(runtime)
    if own is not None:
        return [find(own)]
    return [one for one, v in each((chunks,)) if one.placement == placement and one.routes is None and v in (None, chunks)]


# --- one named schedule on one cut -------------------------------------------------------------------------------


def _few(pipeline: Pipeline) -> tuple[Pipeline, ...]:
    """The pipeline with few microbatches, and with fewer; as it is, where it has few already."""
    two = 2 * pipeline.devices
    least = pipeline.microbatches % two + FEW * pipeline.devices
    if pipeline.microbatches <= least + two:
        return (pipeline,)
    return pipeline.changed(microbatches=least + two), pipeline.changed(microbatches=least)


class _Sample(NamedTuple):
    """A named schedule with few microbatches."""

    value: float
    """About how long it takes with all of them, in ms."""
    peak: int
    """What the fullest device holds at most, in whole amounts."""
    recompute: Any
    """What recomputes in it."""


def _sampled(definition: Definition, pipeline: Pipeline, clock: Clock, runtime: str) -> _Sample | None:
    """A named schedule with few microbatches in which as little recomputes as fits; ``None``: it does not apply."""
    few = _few(pipeline)
    clock.charge(tuning.SCHEDULED * few[0].index.computations)
    try:
        if pipeline.recompute != CHOOSE:
            schedule = definition.schedule(few[0], pipeline.chunks)
        elif runtime in ("", TORCH):
            schedule = best_of(definition, few[0], pipeline.chunks, {}, "makespan")
        else:
            schedule = _kept_to(runtime, definition, few[0])
        if not _fits(schedule, pipeline):
            return None
        value = _ms(schedule)
        if len(few) > 1:  # a microbatch more takes what the last ones took
            fewer = definition.schedule(few[1].changed(recompute=schedule.pipeline.recompute), pipeline.chunks)
            each_one = (value - _ms(fewer)) / (few[0].microbatches - few[1].microbatches)
            value += (pipeline.microbatches - few[0].microbatches) * each_one
    except (Restriction, PipelineError):
        return None
    return _Sample(value, max(schedule.peak_memory), schedule.pipeline.recompute)


def _made(definition: Definition, pipeline: Pipeline, chosen: Any, clock: Clock) -> Found | None:
    """A named schedule with all microbatches and this choice of what recomputes; ``None``: it does not fit after all."""
    clock.charge(tuning.SCHEDULED * pipeline.index.computations)
    try:
        schedule = definition.schedule(pipeline.changed(recompute=chosen), pipeline.chunks)
    except (Restriction, PipelineError):
        return None
    return Found(definition.name, schedule) if _fits(schedule, pipeline) else None


def _kept_to(runtime: str, definition: Definition, pipeline: Pipeline) -> Schedule:
    """A named schedule that fits, with what takes least of the ways to recompute that a runtime has.

    Raises:
        Restriction: it does not apply, or none of them fits.
    """
    found = []
    for policy in policies_of(pipeline, runtime):
        high = max(pipeline.counts) if policy.block else 0
        low, best = 0, _of_policy(definition, pipeline, policy, high)
        while best is not None and low < high:  # less recomputing holds more
            middle = (low + high) // 2
            less = _of_policy(definition, pipeline, policy, middle)
            low, high, best = (low, middle, less) if less is not None else (middle + 1, high, best)
        found += [best] if best is not None else []
    if not found:
        raise Restriction(f"{definition.name}: it does not fit, whatever {runtime} can recompute")
    return min(found, key=_ms)


def _of_policy(definition: Definition, pipeline: Pipeline, policy: Policy, most: int) -> Schedule | None:
    assert pipeline.layers is not None
    tables = policy.tables(pipeline.layers, pipeline.counts, most if policy.block else None)
    try:
        schedule = definition.schedule(pipeline.changed(recompute=tables), pipeline.chunks)
    except PipelineError:
        return None
    return schedule if _fits(schedule, pipeline) else None


def _fits(schedule: Schedule, pipeline: Pipeline) -> bool:
    return schedule.within_memory and not schedule.order.paired and schedule.pipeline.places == pipeline.places


def _ms(schedule: Schedule) -> float:
    return float(Fraction(schedule.makespan, schedule.pipeline.ticks.per_unit))
