"""What copies to the host and back take, read from the pipeline's own fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ppopt.checker.factors import Factors
from ppopt.pipeline import Pipeline

Row = Sequence[Fraction | None]


def away_of(pipeline: Pipeline, route: int, held: Row, each: Sequence[Factors]) -> list[Fraction | None]:
    """``[stage]``: what of the activation that a stage of a route holds moves to the host; nothing where none may.

    ``each``: the factors of the route's microbatches by stage; ``held`` has them already.
    """
    if pipeline.offload is None:
        return [Fraction(0)] * pipeline.stages
    found: list[Fraction | None] = []
    for stage, (holds, by) in enumerate(zip(held, each, strict=True)):
        given = _entry(pipeline, route, stage, pipeline.offload.amount)
        amount = holds if given is None or holds is None else min(given * by.held, holds)
        still = pipeline.offload.rate is not None and not all(
            _of_device(rate, pipeline.routes[route][stage])
            for rate in (pipeline.offload.rate, pipeline.offload.rate_in)
            if rate is not None
        )
        none = must_of(pipeline, route, stage) == set() or still
        found.append(Fraction(0) if none else amount)
    return found


def copy_times(pipeline: Pipeline, away: Sequence[Row], each: Sequence[Sequence[Factors]]) -> dict[str, list[Row]]:
    """``copy_out``, ``copy_in`` and ``margin`` of each route and stage, in the user's unit; ``None``: there is no copy.

    ``each``: ``[route][stage]``, the factors of its microbatches.
    """
    offload, stages = pipeline.offload, range(pipeline.stages)
    if offload is None:
        none: Row = [None] * pipeline.stages
        return {name: [none] * len(pipeline.routes) for name in ("copy_out", "copy_in", "margin")}

    def takes(route: int, stage: int, back: bool) -> Fraction | None:
        amount = away[route][stage]
        if not amount:
            return None
        rate = offload.rate_in if back and offload.rate_in is not None else offload.rate
        if rate is not None:
            return amount / Fraction(_of_device(rate, pipeline.routes[route][stage]))
        time = _entry(pipeline, route, stage, offload.time_in if back and offload.time_in is not None else offload.time)
        return None if time is None else time * each[route][stage].held

    routes = range(len(pipeline.routes))
    return {
        "copy_out": [[takes(r, s, False) for s in stages] for r in routes],
        "copy_in": [[takes(r, s, True) for s in stages] for r in routes],
        "margin": [[offload.margin for s in stages] for r in routes],
    }


def must_of(pipeline: Pipeline, route: int, stage: int) -> set[int] | None:
    """The microbatches of which a stage has to copy the activation, and no others; ``None``: it may of each."""
    assert pipeline.offload is not None
    which, own = pipeline.offload.stages, pipeline.routes[route]
    if which in ("choose", "sail"):
        return None
    if which == "half":
        chunks = [s for s, device in enumerate(own) if device == own[stage]]
        share: Any = Fraction(1 if 2 * chunks.index(stage) < len(chunks) else 0)
    elif isinstance(which, str):
        share = Fraction(1 if which == "all" else 0)
    else:
        share = which[stage] if isinstance(which, tuple) else which
    routes, differ = pipeline.routes, pipeline.mix.differs
    taken = [m for m, of in enumerate(pipeline.route_of_microbatch) if of == route or (differ and routes[of] == own)]
    whole = [int(n * share) for n in range(len(taken) + 1)]
    of_way = {m for n, m in enumerate(taken) if whole[n] < whole[n + 1]}
    return {m for m in of_way if pipeline.route_of_microbatch[m] == route}


def _entry(pipeline: Pipeline, route: int, stage: int, value: Any) -> Fraction | None:
    """What a stage has of a value that is given as the costs are."""
    if value is None:
        return None
    if pipeline.costs.per == "stage":
        return Fraction(value[stage] if isinstance(value, tuple) else value)
    device = pipeline.routes[route][stage]
    return Fraction(_of_device(value, device) / Counter(pipeline.routes[route])[device])


def _of_device(value: Any, device: int) -> Any:
    return value[device] if isinstance(value, tuple) else value
