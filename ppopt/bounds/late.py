"""How late a device may begin in some schedule of least device span."""

from __future__ import annotations

from itertools import pairwise

from ppopt.bounds.flow import Flow, flow_of
from ppopt.constraints import pairs_save_time, splitting_is_free
from ppopt.op import Kind
from ppopt.pipeline import Pipeline


def latest_first_starts(flow: Flow) -> list[int | None]:
    """Per device, a time by which it has started its first operation; ``None`` where nothing is proved.

    Times count from the first start on any device, and hold for *some* schedule of least device span: one that results from
    any such schedule by shifting operations to the right (later) without moving the end of a device's span. For the
    ends, take the reversed flow; the two kinds of shift move different operations (``F`` here, ``I`` and ``W`` there) and
    neither moves the other's last or first ones, so one schedule has both properties.

    *Claim.* Let the route visit devices 0, 1, … in its first stages, the *spine* (``F`` here; ``I`` in the reversed flow,
    where ``W`` comes before its ``I`` and waits for nothing). Before device d's first operation an earlier device s runs nothing
    that depends on stage d: only its spine operations, at most C for lack of memory, and ``W`` of the reversed flow, for at most
    ``side_s`` in all, since nothing is released before. Shift all these right, as far as what follows them allows. Then a
    path without gaps leads from device 0's first operation to one that did not move; it visits each earlier device at most
    once, in the order of the route, with microbatches that never decrease, so device d starts at most
    ``sum over s < d of (side_s + duration_s + lag_s) + (C - 1) * max duration`` after device 0. Take the last device first;
    later shifts only bring device 0 closer. In the reversed flow a device may begin with ``W`` before device 0 does, but shifted
    right these lie directly before its first ``I``, so by no more than ``side`` less the way from device 0 to that ``I``.

    Proved for one route of a flow without links, and the devices before the first that it visits twice.
    """
    latest: list[int | None] = [None] * flow.devices
    if flow.routes != 1:
        return latest
    spine = [family for family, kind in enumerate(flow.kind) if kind != Kind.W]
    spine = spine[: len(spine) // 2]
    reach = [0]  # least time from device 0's first start to each spine operation, but for the W that comes before the first
    for before, family in pairwise(spine):
        reach.append(reach[-1] + flow.duration[before] + _lag(flow, before, family))
    waits = sum(flow.duration[edge.before] for edge in flow.edges_into[spine[0]])
    order = list(dict.fromkeys(flow.device[family] for family in spine))
    side = {device: _side(flow, device) for device in order}
    first = {device: next(k for k, family in enumerate(spine) if flow.device[family] == device) for device in order}
    early = max([0, *(side[device] - waits - reach[first[device]] for device in order[1:])])
    sides, longest, most = 0, 0, 1
    for family, way in zip(spine, reach, strict=True):
        device = flow.device[family]
        if latest[device] is not None:
            break
        latest[device] = early + way + sides + (most - 1) * longest
        sides += side[device]
        longest = max(longest, flow.duration[family])
        most = max(most, _room(flow, family))
    return latest


def beside_span(pipeline: Pipeline) -> int | None:
    """Ticks by which some schedule of least device span is longer than that, at most; ``None`` where nothing is proved.

    Some such schedule has every device begin, and end, as near to the schedule's ends as proved above. It takes no longer than
    what one device takes, and the time before and after that. So if no schedule has a makespan below T, none has a span below
    ``T - beside_span``; and the search for a span needs no later horizon than ``beside_span`` above it.

    """
    flow = _same(pipeline)
    if flow is None:
        return None
    ends = zip(latest_first_starts(flow), latest_first_starts(flow.reversed()), strict=True)
    return min((first + last for first, last in ends if first is not None and last is not None), default=None)


def start_by(pipeline: Pipeline) -> list[int | None]:
    """Per device, ticks after the first start on any device by which it has started its first operation in some schedule of
    least device span, or of one that is asked for; ``None`` where nothing is proved (:func:`latest_first_starts`)."""
    flow = _same(pipeline)
    return [None] * pipeline.devices if flow is None else latest_first_starts(flow)


def _same(pipeline: Pipeline) -> Flow | None:
    """The flow of a pipeline if they are the same, so that what is proved of schedules of one holds for the other.

    Every backward is whole, or splitting it is free, no pair saves time, no transfers wait for each other, and nothing precedes
    or follows a device's operations.
    """
    whole = not pipeline.costs.split or splitting_is_free(pipeline)
    if not whole or pipeline.lines or pipeline.ticks.traffic or pairs_save_time(pipeline):
        return None
    return flow_of(pipeline)


def _lag(flow: Flow, before: int, after: int) -> int:
    return next(edge.lag for edge in flow.edges_into[after] if edge.before == before)


def _side(flow: Flow, device: int) -> int:
    """Most time for which a device can run operations that wait for nothing, before it releases memory."""
    waiting = [o for o in flow.families_of[device] if flow.kind[o] == Kind.W and not flow.edges_into[o]]
    return sum(flow.duration[o] * _fitting(flow, o, [o]) for o in waiting)


def _room(flow: Flow, family: int) -> int:
    """Most operations of a spine family that can start before one of their microbatches is through."""
    return _fitting(flow, family, [family, *(e.before for e in flow.edges_into[family] if flow.kind[e.before] == Kind.W)])


def _fitting(flow: Flow, family: int, holding: list[int]) -> int:
    """How many microbatches fit into the memory of the family's device, if each holds what these families claim."""
    amount = sum(hold.amount for hold in flow.held if hold.first in holding)
    if flow.limit is None or not amount:
        return flow.count[family]
    return min(flow.count[family], flow.limit[flow.device[family]] // amount)
