"""How late a device may begin in some schedule of least device span."""

from __future__ import annotations

from itertools import pairwise

from ppopt.constraints import FamilyGraph, pairs_save_time, relaxed_graph, splitting_is_free
from ppopt.op import Kind
from ppopt.pipeline import Pipeline


def latest_first_starts(graph: FamilyGraph) -> list[int | None]:
    """Per device, a time by which it has started its first operation; ``None`` where nothing is proved.

    Times count from the first start on any device, and hold for *some* schedule of least device span: one that results from
    any such schedule by shifting operations to the right (later) without moving the end of a device's span. For the
    ends, take the reversed graph; the two kinds of shift move different operations (``F`` here, ``I`` and ``W`` there) and
    neither moves the other's last or first ones, so one schedule has both properties.

    *Claim.* Let the route visit devices 0, 1, … in its first stages, the *spine* (``F`` here; ``I`` in the reversed graph,
    where ``W`` comes before its ``I`` and waits for nothing). Before device d's first operation an earlier device s runs nothing
    that depends on stage d: only its spine operations, at most C for lack of memory, and ``W`` of the reversed graph, for at most
    ``side_s`` in all, since nothing is released before. Shift all these right, as far as what follows them allows. Then a
    path without gaps leads from device 0's first operation to one that did not move; it visits each earlier device at most
    once, in the order of the route, with microbatches that never decrease, so device d starts at most
    ``sum over s < d of (side_s + duration_s + lag_s) + (C - 1) * max duration`` after device 0. Take the last device first;
    later shifts only bring device 0 closer. In the reversed graph a device may begin with ``W`` before device 0 does, but shifted
    right these lie directly before its first ``I``, so by no more than ``side`` less the way from device 0 to that ``I``.

    Proved for one route of a graph without links whose backwards run where the forwards do, with whole weight gradients, and the
    devices before the first that it visits twice.
    """
    latest: list[int | None] = [None] * graph.devices
    if graph.routes != 1 or graph.scattered or graph.in_pieces:
        return latest
    spine = [o for o, family in enumerate(graph.families) if family.kind != Kind.W]
    spine = spine[: len(spine) // 2]
    reach = [0]  # least time from device 0's first start to each spine operation, but for the W that comes before the first
    for before, family in pairwise(spine):
        reach.append(reach[-1] + graph.duration[before] + _lag(graph, before, family))
    waits = sum(graph.duration[p.before] for p in graph.into[spine[0]])
    order = list(dict.fromkeys(graph.owner[family] for family in spine))
    side = {device: _side(graph, device) for device in order}
    first = {device: next(k for k, family in enumerate(spine) if graph.owner[family] == device) for device in order}
    early = max([0, *(side[device] - waits - reach[first[device]] for device in order[1:])])
    sides, longest, most = 0, 0, 1
    for family, way in zip(spine, reach, strict=True):
        device = graph.owner[family]
        if latest[device] is not None:
            break
        latest[device] = early + way + sides + (most - 1) * longest
        sides += side[device]
        longest = max(longest, graph.duration[family])
        most = max(most, _room(graph, family))
    return latest


def beside_span(pipeline: Pipeline) -> int | None:
    """Ticks by which some schedule of least device span is longer than that, at most; ``None`` where nothing is proved.

    Some such schedule has every device begin, and end, as near to the schedule's ends as proved above. It takes no longer than
    what one device takes, and the time before and after that. So if no schedule has a makespan below T, none has a span below
    ``T - beside_span``; and the search for a span needs no later horizon than ``beside_span`` above it.

    """
    graph = same_graph(pipeline)
    if graph is None:
        return None
    ends = zip(latest_first_starts(graph), latest_first_starts(graph.reversed()), strict=True)
    return min((first + last for first, last in ends if first is not None and last is not None), default=None)


def same_graph(pipeline: Pipeline) -> FamilyGraph | None:
    """The relaxed graph of a pipeline if they are the same, so that what is proved of schedules of one holds for the other.

    Every backward is whole, or splitting it is free, no pair saves time, no transfers wait for each other, and nothing precedes
    or follows a device's operations.
    """
    whole = not pipeline.costs.split or splitting_is_free(pipeline)
    if not whole or pipeline.lines or pipeline.ticks.margins or pairs_save_time(pipeline):
        return None
    return relaxed_graph(pipeline)


def _lag(graph: FamilyGraph, before: int, after: int) -> int:
    return next(p.lag for p in graph.into[after] if p.before == before)


def _side(graph: FamilyGraph, device: int) -> int:
    """Most time for which a device can run operations that wait for nothing, before it releases memory."""
    own = graph.machines[device].families
    waiting = [o for o in own if graph.families[o].kind == Kind.W and not graph.into[o]]
    return sum(graph.duration[o] * _fitting(graph, o, [o]) for o in waiting)


def _room(graph: FamilyGraph, family: int) -> int:
    """Most operations of a spine family that can start before one of their microbatches is through."""
    before = (p.before for p in graph.into[family])
    return _fitting(graph, family, [family, *(o for o in before if graph.families[o].kind == Kind.W)])


def _fitting(graph: FamilyGraph, family: int, holding: list[int]) -> int:
    """How many microbatches fit into the memory of the family's device, if each holds what these families claim."""
    amount = sum(held.amount for held in graph.held if held.first in holding)
    if not amount:
        return graph.count[family]
    return min(graph.count[family], graph.reservoirs[graph.owner[family]].limit // amount)
