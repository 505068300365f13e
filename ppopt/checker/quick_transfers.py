"""Whether the transfers that hold a link break no rule, found out in one go (:mod:`ppopt.checker.quick`)."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppopt.checker.facts import Facts
from ppopt.op import Kind, Send
from ppopt.pipeline import IntArray, Pipeline

NOT_RUN = -1
"""In place of the start or end of a computation that is not run."""


class Ran(NamedTuple):
    """Sound computations. By the number of each single one its start and its end (:data:`NOT_RUN`: it is not run); by device
    those of its row."""

    start: IntArray
    end: IntArray
    rows: list[tuple[IntArray, IntArray]]


def transfers_sound(pipeline: Pipeline, facts: Facts, numbers: IntArray, starts: IntArray, ran: Ran) -> bool:
    """Whether all transfers that hold a link are there, in time, one at a time on a link; and, where they block, whether their
    ends compute nothing meanwhile. ``numbers`` and ``starts`` are those of the transfers of all links, in no order."""
    stages, microbatches = pipeline.stages, pipeline.microbatches
    route_of = np.array(pipeline.route_of_microbatch)
    slots, first = stages * microbatches, int(Send.SEND_F) * stages * microbatches
    tables = np.zeros((3, 2, stages, microbatches), np.int64)
    numbered = _links(pipeline)
    for back, (held_for, travels) in enumerate(((facts.up_held, facts.up), (facts.down_held, facts.down))):
        sending = slice(1, None) if back else slice(0, -1)
        of_hops = _of(held_for, stages), _of(travels, stages), numbered[back]
        tables[:, back, sending] = [of[route_of].T for of in of_hops]
    held, lag, link = tables.reshape(3, 2 * slots)
    place = numbers - first
    if ((place < 0) | (place >= 2 * slots)).any():
        return False
    if (np.bincount(place, minlength=2 * slots) != (held > 0)).any():
        return False
    begin = np.zeros(2 * slots, np.int64)
    begin[place] = starts
    by_kind = [
        (ran.start[int(kind) * slots :][:slots], ran.end[int(kind) * slots :][:slots]) for kind in (Kind.F, Kind.B, Kind.I)
    ]
    (forward, made), (whole, whole_end), (split, split_end) = by_kind
    backward, made_back = np.where(whole >= 0, whole, split), np.where(whole >= 0, whole_end, split_end)
    ends, arrival = begin + held, begin + held + lag
    if (begin < np.concatenate((made, made_back)))[place].any():
        return False
    up, down = slice(0, slots - microbatches), slice(slots + microbatches, 2 * slots)
    late_up = (held[up] > 0) & (forward[microbatches:] < arrival[up])
    late_down = (held[down] > 0) & (backward[:-microbatches] < arrival[down])
    if late_up.any() or late_down.any():
        return False
    by_link = place[np.lexsort((starts, link[place]))]
    one, other = by_link[:-1], by_link[1:]
    if ((link[one] == link[other]) & (begin[other] < ends[one])).any():
        return False
    return not pipeline.links.blocking or _stop_what_waits(pipeline, route_of, place, begin, ends, ran)


def _of(table: list[list[int]], stages: int) -> IntArray:
    """``[route, stage]`` of neighbours, as an array."""
    return np.array(table, dtype=np.int64).reshape(-1, stages - 1)


def _links(pipeline: Pipeline) -> tuple[IntArray, IntArray]:
    """``[route, stage]``: the number of the link from a stage to the next one, and of the link back."""
    shared = {pair: group for group, pairs in enumerate(pipeline.links.shared) for pair in pairs}

    def number(source: int, target: int) -> int:
        return shared.get((source, target), len(pipeline.links.shared) + source * pipeline.devices + target)

    up = [[number(one, other) for one, other in pairwise(route)] for route in pipeline.routes]
    down = [[number(other, one) for one, other in pairwise(route)] for route in pipeline.routes]
    return _of(up, pipeline.stages), _of(down, pipeline.stages)


def _stop_what_waits(pipeline: Pipeline, route_of: IntArray, place: IntArray, begin: IntArray, end: IntArray, ran: Ran) -> bool:
    """Whether no device computes while a transfer of its own is under way."""
    slots = pipeline.stages * pipeline.microbatches
    back, slot = np.divmod(place, slots)
    stage, microbatch = np.divmod(slot, pipeline.microbatches)
    routes = np.array(pipeline.routes)
    for at in (stage, stage + 1 - 2 * back):
        devices = routes[route_of[microbatch], at]
        for device, (starts, ends) in enumerate(ran.rows):
            own = place[devices == device]
            following = np.searchsorted(ends, begin[own], side="right")
            behind = np.append(starts, np.iinfo(np.int64).max)[following]
            if (behind < end[own]).any():
                return False
    return True
