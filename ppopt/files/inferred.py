"""What an order alone says of its pipeline, even where the order has mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from ppopt.files.text import FileError
from ppopt.op import Kind, Op, Pair
from ppopt.pipeline import PLACEMENTS, Costs, Pipeline, PipelineError, routes_of

Rows: TypeAlias = Sequence[Sequence[Op | Pair]]


def infer_pipeline(rows: Rows) -> Pipeline:
    """The pipeline that an order is for, at unit costs and without a memory limit: as many devices as rows, all
    stages and microbatches up to the largest that occurs, and the routes on which most microbatches run.

    One route is what most microbatches take; another one is believed in where it is the first one reversed, or where
    at least two microbatches take it, or every microbatch stays on one device. A microbatch that takes none of them counts
    for the nearest. Backwards on other devices than their forwards are believed in where at least two microbatches run each way.

    Raises:
        FileError: no pipeline of these sizes is supported.
    """
    singles = [(device, op) for device, row in enumerate(rows) for op in halves_of(row)]
    stages = max(op.stage for _, op in singles) + 1
    microbatches = max(op.microbatch for _, op in singles) + 1
    costs = Costs(weight_pieces=max(1, *(op.piece + 1 for _, op in singles)))
    try:
        Pipeline(len(rows), microbatches, routes=((*range(len(rows)), *[0] * (stages - len(rows))),))  # sizes only
    except PipelineError as error:
        raise FileError(f"{error.key}: {error.message}") from None
    visits: list[dict[int, int]] = [{} for _ in range(microbatches)]
    for device, op in sorted(singles, key=lambda item: item[1].kind):
        visits[op.microbatch].setdefault(op.stage, device)
    apart = _with_backwards(singles, stages, microbatches)
    if apart is not None:
        return apart.changed(costs=costs, route_of_microbatch=apart.route_of_microbatch)
    usual = [Counter(visit[s] for visit in visits if s in visit) for s in range(stages)]
    fallback = [count.most_common(1)[0][0] if count else 0 for count in usual]
    taken = [tuple(visit.get(s, fallback[s]) for s in range(stages)) for visit in visits]
    counted = Counter(taken).most_common()
    first = counted[0][0]
    stays = all(len(set(route)) == 1 for route in taken)
    believed = [route for route, count in counted if stays or route == first or route == first[::-1] or count > 1]
    routes = sorted(believed, key=lambda route: taken.index(route))
    nearest = {route: max(routes, key=lambda known: _agreement(known, route)) for route in set(taken)}
    route_of_microbatch = tuple(routes.index(nearest[route]) for route in taken)
    placement, chunks = _placement(tuple(routes), len(rows))
    explicit = () if placement else tuple(routes)
    try:
        return Pipeline(
            len(rows),
            microbatches,
            placement or "routes",
            chunks,
            routes=explicit,
            route_of_microbatch=route_of_microbatch,
            costs=costs,
        )
    except PipelineError as error:
        raise FileError(f"{error.key}: {error.message}") from None


def _with_backwards(singles: Sequence[tuple[int, Op]], stages: int, microbatches: int) -> Pipeline | None:
    """The pipeline where some backwards run elsewhere than their forwards; ``None`` where it is not that, or is in doubt."""
    places: dict[tuple[int, int, bool], set[int]] = {}
    for device, op in singles:
        places.setdefault((op.microbatch, op.stage, op.kind != Kind.F), set()).add(device)
    if len(places) < 2 * stages * microbatches or any(len(devices) > 1 for devices in places.values()):
        return None
    ways = [tuple(tuple(min(places[m, s, back]) for s in range(stages)) for back in (False, True)) for m in range(microbatches)]
    counted = Counter(ways)
    if all(on == back for on, back in counted) or min(counted.values()) < 2:
        return None
    known = list(counted)
    try:
        return Pipeline(
            max(device for device, _ in singles) + 1,
            microbatches,
            routes=[on for on, _ in known],
            backward_routes=[back for _, back in known],
            route_of_microbatch=[known.index(way) for way in ways],
        )
    except PipelineError:
        return None


def halves_of(row: Iterable[Op | Pair]) -> Iterator[Op]:
    """The operations of a row one by one, pairs as their halves."""
    for op in row:
        if isinstance(op, Pair):
            yield from op
        else:
            yield op


def _agreement(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x == y for x, y in zip(a, b, strict=True))


def _placement(routes: tuple[tuple[int, ...], ...], devices: int) -> tuple[str, int]:
    """The name of a placement with these routes and its chunks; no name where it has none."""
    chunks, odd = divmod(len(routes[0]), devices)
    for placement in PLACEMENTS if not odd else ():
        if (placement in ("loop", "wave") or chunks == 1) and routes_of(placement, devices, chunks) == routes:
            return placement, chunks
    return "", 1
