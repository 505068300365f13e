"""The routes of microbatches that differ.

Within a route microbatches are alike: everything that counts them (solvers, bounds, list scheduling) relies on that. So
microbatches of one way through the devices that differ are on routes of their own, over the same devices, and each route has
durations and amounts of its own (:func:`on_routes`). Whatever is proved of several routes holds for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ppopt.pipeline.checks import check_size
from ppopt.pipeline.mix import GIVEN, Mix, by_stage
from ppopt.pipeline.partitions import BEST
from ppopt.pipeline.parts import PipelineError
from ppopt.pipeline.routes import Routes
from ppopt.pipeline.runtimes import check_shapes

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline


class Group(NamedTuple):
    """Sequences of one way that are alike: ``routes`` are those of their pieces, from the first piece on (one route where
    microbatches are whole sequences); ``sequences`` the microbatches of each."""

    way: int
    routes: tuple[int, ...]
    sequences: tuple[range, ...]


def groups_of(mix: Mix, ways: Routes, way_of: Sequence[int]) -> tuple[Group, ...]:
    """The groups of a mix, way by way, in the order of their first microbatches; ``way_of``: the way of each microbatch.

    Where the order is given, and not all of a way are alike, each sequence is a group of its own. A way that no microbatch takes
    has a group without sequences.

    Raises:
        PipelineError: the pieces of a sequence take different ways.
    """
    sizes, found, first = mix.sizes(len(way_of), len(ways[0])).of, list[Group](), 0
    of_way: list[list[range]] = [[] for _ in ways]
    for sequence in mix.sequences(len(way_of)):
        taken = {way_of[m] for m in sequence}
        if len(taken) > 1:
            problem = f"the pieces of a sequence take one route, microbatches {sequence[0]} to {sequence[-1]} do not"
            raise PipelineError("pipeline.pieces", problem)
        of_way[taken.pop()].append(sequence)
    for way, sequences in enumerate(of_way):
        alike: dict[tuple[int, ...], list[range]] = {}
        for sequence in sequences:
            alike.setdefault(tuple(sizes[m] for m in sequence), []).append(sequence)
        together = list(alike.values()) or [[]]
        if mix.microbatch_order == GIVEN and len(together) > 1:
            together = [[sequence] for sequence in sequences]
        for group in together:
            routes = tuple(range(first, first + len(group[0] if group else (0,))))
            first += len(routes)
            found.append(Group(way, routes, tuple(group)))
    return tuple(found)


def on_routes(mix: Mix, ways: Routes, way_of: Sequence[int]) -> tuple[Routes, tuple[int, ...]]:
    """Routes on which microbatches are alike, and the route of each microbatch; ``ways``, ``way_of``: those without differences.

    Raises:
        PipelineError: as :func:`groups_of`.
    """
    if not mix.differs:
        return ways, tuple(way_of)
    split, routes = [0] * len(way_of), list[tuple[int, ...]]()
    for group in groups_of(mix, ways, way_of):
        routes += [ways[group.way]] * len(group.routes)
        for sequence in group.sequences:
            for route, m in zip(group.routes, sequence, strict=True):
                split[m] = route
    return tuple(routes), tuple(split)


def check_mix(pipeline: Pipeline) -> None:
    """Raise where the mix is about other microbatches or stages than a pipeline has, or something beside it is not known.

    Raises:
        PipelineError: it is.
    """
    mix = pipeline.mix
    stages = None if isinstance(pipeline.chunks, tuple) else pipeline.devices * pipeline.chunks
    if pipeline.routes:  # what is wrong with these is said later
        stages = len(pipeline.routes[0]) if isinstance(pipeline.routes[0], list | tuple) else None
    mix.check(pipeline.microbatches, stages)
    if mix.differs and pipeline.costs.overlap is not None:
        problem = "what an overlapped pair of microbatches that differ takes is not known; leave it out (forward + backward)"
        raise PipelineError("costs.overlap", problem)
    if mix.by_stage and pipeline.partition == BEST:
        name = next(name for name in ("microbatch_costs", "microbatch_activations") if by_stage(getattr(mix, name)))
        problem = "a table per stage belongs to one cut of the layers, and that is left open; expected one factor per microbatch"
        raise PipelineError(f"pipeline.{name}", problem)
    if mix.differs and pipeline.data_parallel.per_pass:
        problem = "what passes over microbatches that differ exchange is not known; expected false"
        raise PipelineError("data_parallel.per_pass", problem)
    if mix.differs and pipeline.runtime:
        check_shapes(mix, pipeline.microbatches, stages or 1)


def apart(pipeline: Pipeline) -> dict[str, Any]:
    """The routes of a pipeline, and the route of each microbatch, so that those of a route are alike; once it is certain
    that there are not too many operations.

    Raises:
        PipelineError: as :func:`groups_of`.
    """
    check_size(pipeline)
    if not pipeline.mix.differs:
        return {}
    routes, split = on_routes(pipeline.mix, pipeline.ways, way_of_microbatch(pipeline))
    return {"routes": routes, "route_of_microbatch": split}


def way_of_microbatch(pipeline: Pipeline) -> tuple[int, ...]:
    """For each microbatch the number of its way."""
    if not pipeline.mix.differs:
        return pipeline.route_of_microbatch
    number = {way: place for place, way in enumerate(pipeline.ways)}
    return tuple(number[pipeline.routes[route]] for route in pipeline.route_of_microbatch)


def own_split(pipeline: Pipeline, changes: dict[str, Any], derived: set[str]) -> dict[str, Any]:
    """``changes`` of a pipeline whose microbatches differ, with its ways in place of the routes that follow from these.

    ``derived``: the fields that, changed, let the ways of the microbatches be derived anew.
    """
    if not pipeline.mix.differs or not pipeline.routes:
        return changes
    changes = dict(changes)
    kept = "routes" not in changes and changes.get("route_of_microbatch") == pipeline.route_of_microbatch
    if kept or not changes.keys() & {*derived, "route_of_microbatch"}:
        changes["route_of_microbatch"] = way_of_microbatch(pipeline)
    if pipeline.placement == "routes" and not changes.keys() & {"routes", "placement"}:
        changes["routes"] = pipeline.ways
    return changes
