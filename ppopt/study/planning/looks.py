"""A first look at a combination on one placement: named schedules on a cut whose bound is small."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ppopt.clock import Clock
from ppopt.named import Definition, Restriction, find
from ppopt.named.recomputing import best_of
from ppopt.named.registry import each
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError, routes_of
from ppopt.schedule import Schedule
from ppopt.search import tuning
from ppopt.study.planning.floors import Floors
from ppopt.study.planning.space import Case

Counts = tuple[int, ...]
ROUNDS = 40
"""Moves of a cut at most, from the one that is nearly even on. Measured: of Llama 3 70B none takes more than 25."""
SLACK = 1.002
"""How much longer than the bound a linear cut may take. Measured: 1.001 and 1.005 give the same values on Llama 3 70B."""


@dataclass(frozen=True)
class Found:
    """A schedule that fits, and where it is from: the name of a named schedule, or ``ppopt`` where it was searched for."""

    name: str
    schedule: Schedule

    @property
    def value(self) -> Fraction:
        """Its step time in ms."""
        return Fraction(self.schedule.makespan, self.schedule.pipeline.ticks.per_unit)


def first_cut(floors: Floors, placement: str, chunks: int, latest: float = math.inf) -> Counts | None:
    """A cut with a small bound; ``None``: none was found in which a microbatch fits."""
    if placement == "linear":
        return (
            None
            if floors.linear == math.inf
            else floors.cut(min(floors.linear * SLACK, latest)) or floors.cut(floors.linear * SLACK)
        )
    device_of = routes_of(placement, floors.devices, chunks)[0]
    counts = _even(floors.layers, len(device_of))
    best = floors.of_cut(counts, device_of)
    for _ in range(ROUNDS):
        near = min(((floors.of_cut(other, device_of), other) for other in _moved(counts)), default=(math.inf, counts))
        if near[0] >= best * (1 - LEAST):
            break
        best, counts = near
    return counts if best < math.inf else None


LEAST = 1e-3
"""A move is made where it lowers the bound by that fraction: nearly even cuts have shorter ways at both ends."""


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


def look(case: Case, placement: str, chunks: int, clock: Clock) -> Found | None:
    """The best named schedule that fits on the first cut; ``None``: none was found."""
    counts = first_cut(case.floors, placement, chunks)
    if counts is None:
        return None
    best: Found | None = None
    pipeline = _at(case, placement, chunks, counts)
    for definition in definitions(placement, chunks) if pipeline is not None else ():
        if clock.over:
            break
        found = scheduled(definition, pipeline, clock)
        if found is not None and (best is None or found.value < best.value):
            best = found
    return best


def nearby(case: Case, found: Found, clock: Clock) -> Found:
    """The same named schedule on cuts near that of ``found``, from one to the next as long as that is better."""
    device_of, floors, definition = found.schedule.pipeline.routes[0], case.floors, find(found.name)
    tried = {found.schedule.pipeline.counts}
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
            other = scheduled(definition, pipeline, clock)
            if other is not None and other.value < found.value:
                better = other
                break
        if better is None:
            break
        found = better
    return found


NEAR = 8
"""Cuts near one that are tried, those with the smallest bound first. Measured: more find nothing better on Llama 3 70B."""


def _at(case: Case, placement: str, chunks: int, counts: Counts) -> Pipeline | None:
    try:
        return case.pipeline(placement, chunks, partition=counts)
    except PipelineError:
        return None


def definitions(placement: str, chunks: int) -> list[Definition]:
    """The named schedules of a placement."""
    return [one for one, v in each((chunks,)) if one.placement == placement and one.routes is None and v in (None, chunks)]


def scheduled(definition: Definition, pipeline: Pipeline | None, clock: Clock) -> Found | None:
    """A named schedule on a cut, with as little recomputing as fits where that is open; ``None``: it does not fit or apply."""
    if pipeline is None:
        return None
    clock.charge(tuning.SCHEDULED * pipeline.index.computations)
    try:
        if pipeline.recompute == CHOOSE:
            schedule = best_of(definition, pipeline, pipeline.chunks, {}, "makespan")
        else:
            schedule = definition.schedule(pipeline, pipeline.chunks)
    except Restriction:
        return None
    fits = schedule.within_memory and not schedule.order.paired and schedule.pipeline.routes == pipeline.routes
    return Found(definition.name, schedule) if fits else None
