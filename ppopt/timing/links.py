"""When transfers hold their links: first come, first served; or in an order that is given.

*First come, first served.* A transfer is ready when its result is; those of one moment are ready in the order of their numbers
(:class:`~ppopt.op.OpIndex`). A free link takes the transfer that has been ready longest. Where transfers block, the
two ends first finish what they compute and start nothing new; then the transfer starts. Computations start in the order of
their device, as early as they can. Nothing is ever waited for that could be late for ever, so every order that ends without
links ends with them.
"""

from __future__ import annotations

import heapq
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
from ppopt.timing.turns import between_turns

LOOKED_AT = 256
"""Times between two looks at the clock. Measured: everything of one time takes 10 us to 1 ms, the more devices the longer."""
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
    start = _Event(network).run()
    return network.schedule(start)


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
    start = network.begin()
    for node in sequence:
        end = start[node] + network.duration[node]
        for after, lag in following[node]:
            start[after] = max(start[after], end + lag)
    return network.schedule(start)


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
        self.duration: list[int] = durations(pipeline, numbers).tolist()
        self.node = node = position.copy()
        """By the number of each single operation its node, -1: it is not run."""
        node[numbers[self.computations :]] = np.arange(self.computations, len(numbers))
        demands += between_turns(pipeline, order.rows)
        before, after, lag = map(np.concatenate, zip(expand(pipeline, self._data()), demands, strict=True))
        before, after = node[before], node[after]
        run = (before >= 0) & (after >= 0)
        self.before, self.after, self.lag = before[run].tolist(), after[run].tolist(), lag[run].tolist()
        self.machine = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets)).tolist()
        """By node the device, or ``devices`` + the link."""
        self.number: list[int] = numbers.tolist()
        pairs = {number: hop.pair for hop in transfers_of(pipeline) for number in operations(pipeline, hop.send).tolist()}
        transferred = self.number[self.computations : self.offsets[pipeline.devices + len(self.sent)]]
        self.ends: list[tuple[int, int]] = [pairs[number] for number in transferred]
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

    def begin(self) -> list[int]:
        """By node the earliest that its device's all-gather lets it start; transfers wait for what they carry."""
        earliest: list[int] = of_stages(self.pipeline, np.array(self.number), self.pipeline.ticks.lead).tolist()
        return earliest

    def following(self, rows: Iterable[Sequence[int]] = ()) -> list[list[tuple[int, int]]]:
        """By node what waits for its data, then what is next in one of ``rows``; and how long after its end at least."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.duration]
        for before, after, lag in zip(self.before, self.after, self.lag, strict=True):
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

    def schedule(self, start: list[int]) -> Schedule:
        """Nodes' times as a schedule; transfers in the order of their starts."""
        times = np.array(start, dtype=np.int64)
        columns = [times[a:b] for a, b in pairwise(self.offsets)]
        devices, links = self.pipeline.devices, len(self.sent)
        by_start = [np.argsort(column, kind="stable") for column in columns[devices:]]
        rows = tuple(row[o] for row, o in zip((*self.sent, *self.copies), by_start, strict=True))
        begun = tuple(column[o] for column, o in zip(columns[devices:], by_start, strict=True))
        sent, copied = Transfers(rows[:links], begun[:links]), Transfers(rows[links:], begun[links:])
        return Schedule(self.pipeline, self.order, tuple(columns[:devices]), sent, copied)


class _Event:
    """The devices and the links at work, from event to event."""

    def __init__(self, network: Network) -> None:
        self.network = network
        devices, count = network.pipeline.devices, len(network.duration)
        self.blocking = network.pipeline.links.blocking
        self.following = network.following()
        self.needs = np.bincount(np.array(network.after, dtype=np.int64), minlength=count).tolist()
        self.start, self.earliest = [0] * count, network.begin()
        self.arrived = [False] * count
        self.events: list[tuple[int, bool, int]] = []  # time, whether it is the end of the node (or else the arrival), node
        self.next = network.offsets[:devices]
        self.computing, self.stopped = [False] * devices, [0] * devices
        self.waiting: list[list[tuple[int, int, int]]] = [[] for _ in network.sent]  # heaps of time, number, node
        self.taken = [-1] * len(network.sent)  # by link the transfer that it has taken
        self.sending = [False] * len(network.sent)
        self.links_of: list[list[int]] = [[] for _ in range(devices)]
        for link, line in enumerate(network.pipeline.lines):
            for device in {device for pair in line for device in pair}:
                self.links_of[device].append(link)
        self.devices: set[int] = set()  # to look at
        self.links: set[int] = set()

    def run(self) -> list[int]:
        """The start of every node.

        Raises:
            OutOfTime: the clock is over that bounds what is done (:func:`~ppopt.clock.bounded`).
        """
        for node, needs in enumerate(self.needs):
            if not needs:
                heapq.heappush(self.events, (self.earliest[node], False, node))
        times = 0
        while self.events:
            times += 1
            if times % LOOKED_AT == 0:
                check_time()
            time = self.events[0][0]
            while self.events and self.events[0][0] == time:
                _, ended, node = heapq.heappop(self.events)
                if ended:
                    self._end(node, time)
                else:
                    self._arrive(node, time)
            for link in sorted(self.links):
                self._look_at_link(link, time)
            self.links.clear()
            for device in sorted(self.devices):
                self._look_at_device(device, time)
            self.devices.clear()
        return self.start

    def _arrive(self, node: int, time: int) -> None:
        self.arrived[node] = True
        machine = self.network.machine[node]
        link = machine - len(self.next)
        if link < 0:
            self.devices.add(machine)
        else:
            heapq.heappush(self.waiting[link], (time, self.network.number[node], node))
            self.links.add(link)

    def _end(self, node: int, time: int) -> None:
        for after, lag in self.following[node]:
            self.earliest[after] = max(self.earliest[after], time + lag)
            self.needs[after] -= 1
            if not self.needs[after]:
                heapq.heappush(self.events, (self.earliest[after], False, after))
        machine = self.network.machine[node]
        link = machine - len(self.next)
        if link < 0:
            self.computing[machine] = False
            self.devices.add(machine)
            if self.blocking:
                self.links.update(self.links_of[machine])
            return
        self.taken[link], self.sending[link] = -1, False
        self.links.add(link)
        if self.blocking:
            for device in self._ends(node):
                self.stopped[device] -= 1
                self.devices.add(device)

    def _ends(self, node: int) -> tuple[int, int]:
        return self.network.ends[node - self.network.computations]

    def _look_at_link(self, link: int, time: int) -> None:
        """Take the transfer that came first, and start it once its ends do not compute."""
        if self.taken[link] < 0:
            if not self.waiting[link]:
                return
            self.taken[link] = heapq.heappop(self.waiting[link])[2]
            if self.blocking:
                for device in self._ends(self.taken[link]):
                    self.stopped[device] += 1
        node = self.taken[link]
        if not self.sending[link] and not (self.blocking and any(self.computing[device] for device in self._ends(node))):
            self.sending[link] = True
            self._start(node, time)

    def _look_at_device(self, device: int, time: int) -> None:
        node = self.next[device]
        ready = node < self.network.offsets[device + 1] and self.arrived[node]
        if ready and not self.computing[device] and not self.stopped[device]:
            self.next[device] += 1
            self.computing[device] = True
            self._start(node, time)

    def _start(self, node: int, time: int) -> None:
        self.start[node] = time
        heapq.heappush(self.events, (time + self.network.duration[node], True, node))
