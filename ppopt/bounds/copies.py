"""Bounds of pipelines whose activations may be on the host: those of a relaxation, and what can at most be away in the time.

*Never held.* What may be away at some time is never held at all (:func:`~ppopt.pipeline.rewriting.never_copied`). A schedule with
copies is then one of a pipeline without, and what bounds that bounds it.

*Away in the time.* A microbatch holds an amount from the start of ``F`` to the end of its backward, no shorter than the way of
its data. Where it is copied, at least from the start of ``F`` to the end of the copy out, and from the start of the copy in to
the end of the backward. In a makespan of T there is time for so many copies on a device's engine, the best ones first. What is
left of these rectangles fits under the limit between the first forward and the last backward. The least T for which it does is
a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import wraps
from typing import Any, NamedTuple, TypeVar

from ppopt.bounds.bound import Bound
from ppopt.bounds.heads import heads, tails
from ppopt.constraints import FamilyGraph, relaxed_graphs
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.pipeline.rewriting import never_copied
from ppopt.schedule import Objective

BoundOf = TypeVar("BoundOf", bound=Callable[..., Any])


def relaxed(pipeline: Pipeline) -> tuple[Pipeline, int]:
    """The relaxation without copies, and how many ticks of ``pipeline`` are one of it."""
    without = never_copied(pipeline)
    return without, pipeline.ticks.per_unit // without.ticks.per_unit


def beside_copies(bound: BoundOf) -> BoundOf:
    """A bound in ticks that also takes pipelines with copies to the host: that of the relaxation then, without a schedule."""

    @wraps(bound)
    def of(pipeline: Pipeline, *args: Any, **options: Any) -> Bound | None:
        found: Bound | None
        if not pipeline.engines:
            found = bound(pipeline, *args, **options)
            return found
        without, factor = relaxed(pipeline)
        if options.get("target") is not None:
            options["target"] = -(-options["target"] // factor)
        found = bound(without, *args, **options)
        return found and replace(found, value=found.value * factor, schedule=None)

    return of  # type: ignore[return-value]


class _Stage(NamedTuple):
    """What the microbatches of a stage hold: how many there are, memory times time of one, what a copy spares of that, and what
    it takes of an engine."""

    number: int
    area: int
    spared: int
    takes: int


def away(pipeline: Pipeline, objective: Objective = "makespan", *, pairs: bool = False) -> Bound | None:
    """What can at most be away in the time (see above); ``None`` without a limit or without copies.

    ``pairs``: the bound is for schedules with overlapped pairs, too.
    """
    if pipeline.amounts.limit is None or not pipeline.engines:
        return None
    plain = pipeline.changed(offload=None, memory=replace(pipeline.memory, limit=None), **_routes(pipeline))
    factor = pipeline.ticks.per_unit // plain.ticks.per_unit
    best = None
    for graph in relaxed_graphs(plain, pairs):
        for device in range(pipeline.devices):
            value = _of_device(pipeline, graph, device, factor, objective)
            if value is not None and (best is None or value > best.value):
                proof = f"memory times time of device {device}, less what its engine can have away"
                best = Bound(value, "memory", proof)
    return best


def _routes(pipeline: Pipeline) -> dict[str, Any]:
    return {"route_of_microbatch": pipeline.route_of_microbatch}


def _of_device(pipeline: Pipeline, graph: FamilyGraph, device: int, factor: int, objective: Objective) -> int | None:
    """The least makespan in which what a device holds fits."""
    amounts = pipeline.amounts
    assert amounts.limit is not None
    own = [o for o in graph.of_kind(Kind.F) if graph.owner[o] == device]
    stages = [_stage(pipeline, graph, forward, factor) for forward in own]
    room = int(amounts.limit[device] - amounts.static[device])
    if not own or room <= 0:
        return None
    outside = 0
    if objective == "makespan":
        head, tail = (of(graph, memory=False, most=1) for of in (heads, tails))
        backs = [o for o in graph.machines[device].families if graph.families[o].kind != Kind.F]
        outside = factor * (min(int(head[o][0]) for o in own) + min(int(tail[o][0]) for o in backs))
    area = sum(stage.number * stage.area for stage in stages)
    best = sorted((stage for stage in stages if stage.spared > 0), key=lambda s: Fraction(s.takes, s.spared))

    def fits(time: int) -> bool:
        """Whether what is held fits into so much time, with the copies that this leaves room for, parts of some too."""
        left, held = Fraction(time), Fraction(area)
        for stage in best:
            copies = Fraction(stage.number) if not stage.takes else min(Fraction(stage.number), left / stage.takes)
            held, left = held - copies * stage.spared, left - copies * stage.takes
        return held <= room * time

    low, high = 0, -(-area // room)
    while low < high:
        time = (low + high) // 2
        low, high = (low, time) if fits(time) else (time + 1, high)
    return low + outside


def _stage(pipeline: Pipeline, graph: FamilyGraph, forward: int, factor: int) -> _Stage:
    """What a stage holds, by its forward's place in the graph of the pipeline without copies; times in ticks of ``pipeline``."""
    family = graph.families[forward]
    route, stage = family.route, family.stage
    amounts, ticks = pipeline.amounts, pipeline.ticks
    activation, kept, moves = (int(of[route, stage]) for of in (amounts.activation, amounts.kept, amounts.away))
    places = {
        other.kind: place
        for place, other in enumerate(graph.families)
        if (other.stage, other.route) == (stage, route) and isinstance(other.kind, Kind)
    }
    gradient = places.get(Kind.I, places.get(Kind.B))
    assert gradient is not None
    out, back = ticks.copying[route, :, stage].tolist()
    least = factor * graph.duration[forward] + max(out, 0) + max(back, 0)
    area = spared = 0
    for amount, last in ((activation - kept, gradient), (kept, places.get(Kind.W, gradient))):
        way = factor * (graph.path(forward, last) or 0)
        ending = factor * (graph.path(gradient, last) or 0)
        part = min(amount, moves) if out >= 0 else 0
        moves -= part
        area += amount * way
        spared += part * max(0, way - least - ending)
    takes = max(out, back) if pipeline.offload is None or pipeline.offload.engines == 2 else out + back
    return _Stage(graph.count[forward], area, spared, takes)
