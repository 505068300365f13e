"""Longest paths through a schedule, along data and along what its devices and links run one after the other."""

from __future__ import annotations

import numpy as np

from ppopt.pipeline import IntArray
from ppopt.schedule import Schedule, of_stages
from ppopt.timing.demands import NO_DEMANDS, Demands
from ppopt.timing.links import begun, network_in_turn, topological

NEVER = -(2**40)
"""Ticks of a path that there is not: so few that adding to it leaves it far below every path that there is."""


def there_is(length: int) -> bool:
    """Whether a path has that length; :data:`NEVER` with something added to it is none."""
    return length > NEVER // 2


class Paths:
    """A schedule's operations and transfers as the nodes of a graph, in the order of its rows.

    ``rows``: the nodes of every device, then of every link and, where transfers block, of a device and a link. With ``copies``
    those to the host and back are nodes, too, and then come the rows of their engines.
    """

    def __init__(self, schedule: Schedule, demands: Demands = NO_DEMANDS, *, copies: bool = False) -> None:
        self.network, self.rows = network_in_turn(schedule.pipeline, schedule.order, begun(schedule), demands, copies=copies)
        self.duration: list[int] = self.network.duration.tolist()
        self.after = self.network.following(self.rows)
        """Per node what follows it, and how long after its end at least."""
        self.before: list[list[tuple[int, int]]] = [[] for _ in self.duration]
        for before, row in enumerate(self.after):
            for after, lag in row:
                self.before[after].append((before, lag))
        self.sequence = topological(self.after)
        """All nodes, each behind those that it waits for."""

    @property
    def devices(self) -> list[list[int]]:
        """Per device its nodes, in their order."""
        return self.rows[: self.network.pipeline.devices]

    def heads(self, begin: IntArray) -> IntArray:
        """``[node, column]``: the length of a path to the node's start, and ``begin`` where it comes from, at most."""
        head = begin.copy()
        for node in self.sequence:
            end = head[node] + self.duration[node]
            for after, lag in self.after[node]:
                np.maximum(head[after], end + lag, out=head[after])
        return head

    def tails(self, end: IntArray) -> IntArray:
        """``[node, column]``: the length of a path from the node's end, and ``end`` where it leads, at most."""
        tail = end.copy()
        for node in reversed(self.sequence):
            time = tail[node] + self.duration[node]
            for before, lag in self.before[node]:
                np.maximum(tail[before], time + lag, out=tail[before])
        return tail


def around(paths: Paths) -> tuple[IntArray, IntArray]:
    """``[node, device]``: how long after the device's begin the node starts at least; how long after its end the device ends at
    least. Of the device's own nodes: with its all-gather, its reduce-scatter and the optimizer, else 0. Of others
    :data:`NEVER`.
    """
    network, pipeline = paths.network, paths.network.pipeline
    numbers = network.number
    found = []
    for table in (pipeline.ticks.lead, pipeline.ticks.tail):
        beside = np.full((len(numbers), pipeline.devices), NEVER, dtype=np.int64)
        times = of_stages(pipeline, numbers, table)
        for device, row in enumerate(paths.devices):
            beside[row, device] = times[row]
        found.append(beside)
    return found[0], found[1]


def shortest_spans(schedule: Schedule, demands: Demands = NO_DEMANDS) -> Schedule:
    """The same order with the least device span (largest over the devices), in whole ticks, that any times give it.

    Let ``A[d, e]`` be the longest path from the begin of device d to the end of device e, with what they do before and after
    their operations (:func:`around`). Begins ``b`` and a span S fit each other just where ``b[d] + A[d, e] <= b[e] + S`` for all
    d and e. There are such begins if and only if no cycle over devices has more weight than S times its length: S is the largest
    mean weight of a cycle (Karp 1978, doi 10.1016/0012-365X(78)90011-0). Transfers keep their order. Takes about D times as long
    as timing an order.

    ``demands``: further waits, which the schedule keeps.
    """
    paths = Paths(schedule, demands)
    first, last = around(paths)
    busy = [device for device, row in enumerate(paths.devices) if row]
    weight = from_begin_to_end(paths, paths.heads(first), last)[np.ix_(busy, busy)]
    begin, span = best_begins(weight)
    if span >= schedule.device_span:
        return schedule
    earliest = np.zeros((len(paths.duration), 1), dtype=np.int64)
    for device, time in zip(busy, begin.tolist(), strict=True):
        row = paths.devices[device]
        earliest[row, 0] = time + first[row, device]
    return paths.network.schedule(paths.heads(earliest)[:, 0])


def best_begins(weight: IntArray) -> tuple[IntArray, int]:
    """Begins of devices with which the largest device span is least, in whole ticks, and that span.

    ``weight``: ``[device, other]``, the longest path from the begin of one to the end of the other.
    """
    span = largest_mean(weight)
    begin = np.zeros(len(weight), dtype=np.int64)
    for _ in weight:
        begin = np.maximum(begin, (begin[:, None] + weight).max(axis=0) - span)
    return begin, span


def from_begin_to_end(paths: Paths, heads: IntArray, last: IntArray) -> IntArray:
    """``[device, other]``: the longest path from the begin of a device to the end of another one.

    ``heads`` of all nodes from the begins, ``last`` to the ends (:func:`around`); a device without operations has no path.
    """
    ends = heads + np.array(paths.duration, dtype=np.int64)[:, None]
    columns = [
        (ends[row] + last[row, device, None]).max(axis=0) if row else np.full(len(paths.devices), NEVER)
        for device, row in enumerate(paths.devices)
    ]
    return np.stack(columns, axis=1)


def heaviest_cycle(weight: IntArray) -> list[int]:
    """A cycle of the largest mean weight in the complete graph with these weights: its nodes, each followed by the next.

    From a cycle to one of a larger mean, until there is none.
    """
    cycle = [int(weight.diagonal().argmax())]
    while True:
        total = sum(int(weight[a, b]) for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        better = _positive_cycle(weight * len(cycle) - total)
        if better is None:
            return cycle
        cycle = better


def _positive_cycle(weight: IntArray) -> list[int] | None:
    """A cycle of more than no weight; ``None``: there is none (Bellman and Ford's method)."""
    count = len(weight)
    heaviest, before = np.zeros(count, dtype=np.int64), np.full(count, -1)
    for _ in range(count):
        walks = heaviest[:, None] + weight
        longer = walks.max(axis=0) > heaviest
        if not longer.any():
            return None
        before[longer] = walks.argmax(axis=0)[longer]
        heaviest = np.maximum(heaviest, walks.max(axis=0))
    node = int(np.flatnonzero(longer)[0])
    for _ in range(count):
        node = int(before[node])
    cycle = [node]
    while int(before[cycle[-1]]) != node:
        cycle.append(int(before[cycle[-1]]))
    return cycle[::-1]


def largest_mean(weight: IntArray) -> int:
    """The largest mean weight of a cycle in the complete graph with these weights, rounded up."""
    count = len(weight)
    walks = [np.zeros(count, dtype=np.int64)]  # per number of steps and per end, the heaviest walk
    for _ in range(count):
        walks.append((walks[-1][:, None] + weight).max(axis=0))
    means = [-((walk - walks[-1]) // (count - steps)) for steps, walk in enumerate(walks[:-1])]
    return int(np.min(means, axis=0).max())
