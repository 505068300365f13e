"""When transfers hold their links: first come, first served; or in an order that is given.

*First come, first served.* A transfer is ready when its result is; those of one moment are ready in the order of their numbers
(:class:`~ppopt.op.OpIndex`). A free link takes the transfer that has been ready longest. Where transfers block, the
two ends first finish what they compute and start nothing new; then the transfer starts. Computations start in the order of
their device, as early as they can. Nothing is ever waited for that could be late for ever, so every order that ends without
links ends with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.clock import check_time
from ppopt.constraints import (
    Family,
    Precede,
    Word,
    copies_of,
    data_of,
    expand,
    instances,
    microbatch_turns,
    operations,
    select,
    transfers_of,
)
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Order, Schedule, Transfers, durations, halves, of_stages
from ppopt.timing.demands import NO_DEMANDS, Demands
from ppopt.timing.link_loop import NOTHING, Nodes, Sizes, State, serve
from ppopt.timing.turns import between_turns

FloatArray: TypeAlias = npt.NDArray[np.float64]


def sent(pipeline: Pipeline) -> tuple[IntArray, ...]:
    """Per link (:attr:`~ppopt.pipeline.Pipeline.lines`) the numbers of its transfers, ascending."""
    hops = transfers_of(pipeline)
    rows = ([operations(pipeline, hop.send) for hop in hops if hop.pair in line] for line in pipeline.lines)
    return tuple(np.sort(np.concatenate(row)) for row in rows)


def first_come(pipeline: Pipeline, order: Order, position: IntArray, demands: Demands = NO_DEMANDS) -> Schedule:
    """The times of an order that ends, and of its transfers, first come, first served.

    ``position``: by the number of each single computation its place in the concatenated rows of the devices, -1: it is not run.
    """
    network = Network(pipeline, order, position, demands=demands)
    check_time(serve.seconds * len(network.number))
    return network.schedule(_served(network))


def _served(network: Network) -> IntArray:
    """The start of every node, first come, first served."""
    pipeline, count, links = network.pipeline, len(network.number), len(network.sent)
    sizes = Sizes(count, links, 2 * count, bool(pipeline.links.blocking))
    ends = np.array(network.ends if sizes.blocking else [], dtype=np.int64).reshape(-1, 2) + links
    before = np.full((network.computations if sizes.blocking else 0, 2), NOTHING)
    machine = np.where(network.machine < pipeline.devices, network.machine + links, network.machine - pipeline.devices)
    nodes = Nodes(
        network.duration,
        machine,
        np.bincount(network.after, minlength=count),
        network.begin(),
        *network.by_before(),
        *np.concatenate((before, ends)).T.copy(),
    )
    links_of = [
        [link for link, line in enumerate(pipeline.lines) if sizes.blocking and any(device in pair for pair in line)]
        for device in range(pipeline.devices)
    ]
    state = State.of(sizes, machine, np.array(network.offsets[: pipeline.devices + 1]), links_of)
    longest = int(network.duration.max(initial=0)) + int(network.lag.max(initial=0))
    latest = (count + 1) * longest + int(nodes.earliest.max(initial=0)) + 1
    serve(count, latest * sizes.stride, sizes, nodes, state)
    start: IntArray = state.start
    return start


def begun(schedule: Schedule) -> FloatArray:
    """By the number of each single operation, transfers that hold a link and copies included, when it starts; NaN: it is not
    run."""
    index = schedule.pipeline.index
    times = np.full(index.size, np.nan)
    rows = (*schedule.order.rows, *schedule.transfers.rows, *schedule.copies.rows)
    for row, starts in zip(rows, _starts(schedule), strict=True):
        for half in halves(index, row):
            times[half[half >= 0]] = starts[half >= 0]
    return times


def _starts(schedule: Schedule) -> tuple[IntArray, ...]:
    return (*schedule.start, *schedule.transfers.start, *schedule.copies.start)


def left_shifted(schedule: Schedule, demands: Demands = NO_DEMANDS) -> Schedule:
    """The schedule with everything as early as its own orders allow: of the operations on every device, of the transfers on
    every link, and, where transfers block, of the computations and the transfers of a device."""
    return in_turn(schedule.pipeline, schedule.order, begun(schedule), demands)


def in_turn(pipeline: Pipeline, order: Order, times: FloatArray, demands: Demands = NO_DEMANDS) -> Schedule:
    """The earliest times of an order that ends, with transfers in the order of their ``times`` (by number, in any unit; NaN: not
    run): on every link and, where they block, among the computations of a device. Copies to the host and back that have a time
    are made in the order of these on their engines.

    Raises:
        ValueError: there is no such order, or something waits for itself in it.
    """
    network, rows = network_in_turn(pipeline, order, times, demands, copies=True)
    following = network.following(rows)
    sequence = topological(following)
    if len(sequence) < len(following):
        raise ValueError("transfers and computations wait for each other")
    start, duration = network.begin().tolist(), network.duration.tolist()
    for node in sequence:
        end = start[node] + duration[node]
        for after, lag in following[node]:
            start[after] = max(start[after], end + lag)
    return network.schedule(np.array(start, dtype=np.int64))


def topological(following: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """The nodes, each behind all that it follows; those that wait for each other are left out. ``following``: per node what
    follows it, and a lag."""
    needs = [0] * len(following)
    for row in following:
        for after, _ in row:
            needs[after] += 1
    found, ready = [], deque(node for node, count in enumerate(needs) if not count)
    while ready:
        node = ready.popleft()
        found.append(node)
        for after, _ in following[node]:
            needs[after] -= 1
            if not needs[after]:
                ready.append(after)
    return found


def network_in_turn(
    pipeline: Pipeline, order: Order, times: FloatArray, demands: Demands = NO_DEMANDS, *, copies: bool = False
) -> tuple[Network, list[list[int]]]:
    """The network of an order, and its rows (:meth:`Network.rows`), with transfers in the order of ``times``, as in
    :func:`in_turn`; without copies, unless these are asked for.

    Raises:
        ValueError: something that is run has no time.
    """
    index = pipeline.index
    numbers = np.concatenate(order.rows)
    position = np.full(index.size, -1, dtype=np.int64)
    for half in halves(index, numbers):
        position[half[half >= 0]] = np.flatnonzero(half >= 0)
    transfers = tuple(row[np.argsort(times[row], kind="stable")] for row in sent(pipeline))
    copied = made(pipeline, times) if copies else ()
    nodes = np.concatenate((halves(index, numbers)[0], *transfers, *copied))
    if np.isnan(times[nodes]).any():
        raise ValueError("not everything that is run has a time")
    network = Network(pipeline, order, position, transfers, demands, copied)
    return network, network.rows(times[nodes].tolist())


def made(pipeline: Pipeline, times: FloatArray) -> tuple[IntArray, ...]:
    """Per engine (:attr:`~ppopt.pipeline.Pipeline.engines`) the copies that have a time, in the order of these."""
    rows = []
    for engine in pipeline.engines:
        own = [
            operations(pipeline, Family(stage, send, route))
            for route, devices in enumerate(pipeline.routes)
            for stage, device in enumerate(devices)
            for send in engine.sends
            if device in engine.devices
        ]
        row = np.concatenate(own)
        row = row[~np.isnan(times[row])]
        rows.append(row[np.lexsort((row, times[row]))])
    return tuple(rows)


class Network:
    """The computations of an order and the transfers between them as numbered nodes: computations by their places in the
    concatenated rows, then the transfers, link by link, then the copies, engine by engine."""

    def __init__(
        self,
        pipeline: Pipeline,
        order: Order,
        position: IntArray,
        transfers: tuple[IntArray, ...] | None = None,
        demands: Demands = NO_DEMANDS,
        copies: tuple[IntArray, ...] = (),
    ) -> None:
        self.pipeline, self.order, self.copies = pipeline, order, copies
        self.sent = sent(pipeline) if transfers is None else transfers
        self.offsets = np.cumsum([0, *map(len, order.rows), *map(len, self.sent), *map(len, copies)]).tolist()
        self.computations: int = self.offsets[pipeline.devices]
        numbers = np.concatenate((*order.rows, *self.sent, *copies))
        self.duration: IntArray = durations(pipeline, numbers)
        self.node = node = position.copy()
        """By the number of each single operation its node, -1: it is not run."""
        node[numbers[self.computations :]] = np.arange(self.computations, len(numbers))
        demands += between_turns(pipeline, order.rows)
        before, after, lag = map(np.concatenate, zip(expand(pipeline, self._data()), demands, strict=True))
        before, after = node[before], node[after]
        run = (before >= 0) & (after >= 0)
        self.before, self.after, self.lag = before[run], after[run], lag[run]
        self.machine = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        """By node the device, or ``devices`` + the link."""
        self.number: IntArray = numbers
        pairs = {number: hop.pair for hop in transfers_of(pipeline) for number in operations(pipeline, hop.send).tolist()}
        transferred = numbers[self.computations : self.offsets[pipeline.devices + len(self.sent)]]
        self.ends: list[tuple[int, int]] = [pairs[number] for number in transferred.tolist()]
        """By transfer its two devices."""

    def _data(self) -> Iterable[Word]:
        """What waits for what."""
        return (*data_of(self.pipeline), *(select(copies_of(self.pipeline), Precede) if self.copies else ()))

    def turns(self) -> tuple[IntArray, IntArray]:
        """Nodes before and after in the order in which microbatches that differ run, and the pieces of a sequence."""
        words = microbatch_turns(self.pipeline)
        columns = [tuple(self.node[of] for of in instances(self.pipeline, word)) for word in words]
        none = np.empty(0, dtype=np.int64)
        before, after = (np.concatenate(column) for column in zip((none, none), *columns, strict=True))
        run = (before >= 0) & (after >= 0)
        return before[run], after[run]

    def begin(self) -> IntArray:
        """By node the earliest that its device's all-gather lets it start; transfers wait for what they carry."""
        return of_stages(self.pipeline, self.number, self.pipeline.ticks.lead)

    def by_before(self) -> tuple[IntArray, IntArray, IntArray]:
        """What waits for data: entries ``[n]`` to ``[n + 1]`` of the first say where node ``n`` has, in the other two, the nodes
        that wait for it, and how long after its end at least."""
        by_node = np.argsort(self.before, kind="stable")
        first = np.searchsorted(self.before[by_node], np.arange(len(self.number) + 1))
        return first, self.after[by_node], self.lag[by_node]

    def following(self, rows: Iterable[Sequence[int]] = ()) -> list[list[tuple[int, int]]]:
        """By node what waits for its data, then what is next in one of ``rows``; and how long after its end at least."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.duration]
        for before, after, lag in zip(*map(np.ndarray.tolist, (self.before, self.after, self.lag)), strict=True):
            found[before].append((after, lag))
        for row in rows:
            for before, after in pairwise(row):
                found[before].append((after, 0))
        return found

    def rows(self, begin: list[float]) -> list[list[int]]:
        """What runs one after the other: nodes of each device, each link and, where transfers block, of a device and a link."""
        plain = [list(range(a, b)) for a, b in pairwise(self.offsets)]
        devices = plain[: self.pipeline.devices]
        links = plain[len(devices) : len(devices) + len(self.sent)]
        if not self.pipeline.links.blocking:
            return plain
        both = [
            sorted([*row, *own], key=lambda node: (begin[node], node))
            for device, row in enumerate(devices)
            for link in links
            if (own := [node for node in link if device in self.ends[node - self.computations]])
        ]
        return plain + both

    def schedule(self, start: IntArray) -> Schedule:
        """Nodes' times as a schedule; transfers in the order of their starts."""
        columns = [start[a:b] for a, b in pairwise(self.offsets)]
        devices, links = self.pipeline.devices, len(self.sent)
        by_start = [np.argsort(column, kind="stable") for column in columns[devices:]]
        rows = tuple(row[o] for row, o in zip((*self.sent, *self.copies), by_start, strict=True))
        begun = tuple(column[o] for column, o in zip(columns[devices:], by_start, strict=True))
        sent, copied = Transfers(rows[:links], begun[:links]), Transfers(rows[links:], begun[links:])
        return Schedule(self.pipeline, self.order, tuple(columns[:devices]), sent, copied)
