"""What every operation waits for, the critical path, and why each device is idle: read off the times of a schedule.

Nothing here asks how the times were made: a schedule in which something waits longer than it has to is read as it is.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.op import Kind, Send
from ppopt.pipeline import IntArray
from ppopt.schedule import Schedule, durations, halves, memory_changes, of_stages
from ppopt.timing.links import begun, network_in_turn

BoolArray: TypeAlias = npt.NDArray[np.bool_]
NEVER = np.iinfo(np.int64).max


class Wait(enum.IntFlag):
    """What an operation, or a transfer, waits for until it starts. Several may hold."""

    DATA = 1
    """Something that it needs arrives just then; of a transfer: its result exists just then."""
    DEVICE = 2
    """The operation before it on its device ends just then; of a transfer that blocks: what one of its ends computes."""
    MEMORY = 4
    """Its data was there before, but what it takes would have exceeded the memory limit until something ended just then."""
    LINK = 8
    """What arrives just then had to queue for its link, or a transfer stops its device until then; of a transfer: it queues."""
    CRITICAL = 16
    """It is on the critical path."""
    GATHER = 32
    """The all-gather of its weights, which begins with the step, ends just then."""


class Cause(enum.StrEnum):
    """Why a device is idle. Of several causes the first in this list counts (after ``start``, before ``end``)."""

    START = "start"
    """It has not run its first operation yet. The all-gather is part of it."""
    LINK = "link"
    """What its next operation misses has been computed, and is on its way or queued; or a transfer stops the device."""
    DATA = "data"
    """No operation that it has left has its inputs."""
    MEMORY = "memory"
    """None of those that have their inputs fits into its memory."""
    ORDER = "order"
    """Another operation could run, but its order has something else first; or the schedule lets the next one wait."""
    END = "end"
    """It has run its last operation. The reduce-scatter and the optimizer step are part of it."""


class Idle(NamedTuple):
    """A device is idle, from ``since`` until ``until`` (ticks), for one cause."""

    since: int
    until: int
    cause: Cause
    place: int
    """The place of its next operation in its order; behind the last one: the number of its operations."""


class Step(NamedTuple):
    """An operation or a transfer on the critical path."""

    number: int
    """Of the operation (:class:`~ppopt.op.OpIndex`)."""
    machine: int
    """Its device, or the number of devices + the place of its link in ``pipeline.lines``."""
    start: int
    end: int


class Waited:
    """What the operations of a schedule wait for, and its devices."""

    def __init__(self, schedule: Schedule) -> None:
        """``schedule``: a whole one, with its transfers where these hold links."""
        self.schedule = schedule
        self._graph = _Graph(schedule)

    @cached_property
    def operations(self) -> tuple[IntArray, ...]:
        """Per device and operation what it waits for, as :class:`Wait`."""
        return self._flags[: self.schedule.pipeline.devices]

    @cached_property
    def transfers(self) -> tuple[IntArray, ...]:
        """Per link and transfer (``schedule.transfers``) what it waits for, as :class:`Wait`."""
        return self._flags[self.schedule.pipeline.devices :]

    @cached_property
    def path(self) -> tuple[Step, ...]:
        """The critical path, from its first operation to the last one.

        It is walked back from what ends last, from each operation to one that it waits for: for data, a link, or its device,
        preferred in this sequence. Where nothing is later than it has to be, it begins with the step, and what is on it and the
        latencies between take as long as the makespan. Else it may begin later, where an operation waits for nothing.
        """
        graph, offsets = self._graph, self._graph.network.offsets
        machines = np.searchsorted(offsets, graph.path, side="right") - 1
        return tuple(
            Step(graph.network.number[node], machine, int(graph.start[node]), int(graph.end[node]))
            for node, machine in zip(graph.path, machines.tolist(), strict=True)
        )

    @cached_property
    def idle(self) -> tuple[tuple[Idle, ...], ...]:
        """Per device when it is idle between the begin of the schedule and its end, and why; in the sequence of times."""
        return tuple(_Device(self._graph, device).idle() for device in range(self.schedule.pipeline.devices))

    @cached_property
    def _flags(self) -> tuple[IntArray, ...]:
        graph, schedule = self._graph, self.schedule
        flags = graph.flags.copy()
        flags[graph.path] |= Wait.CRITICAL
        rows = [flags[a:b] for a, b in pairwise(graph.network.offsets)]
        for device in range(schedule.pipeline.devices):
            rows[device] |= np.where(_Device(graph, device).lacked_memory(), int(Wait.MEMORY), 0)
        for link, shown in enumerate(schedule.transfers.rows):  # the graph has them by start, the schedule as it was given
            mine = graph.network.sent[link]
            sequence = np.argsort(mine)
            machine = schedule.pipeline.devices + link
            rows[machine] = rows[machine][sequence[np.searchsorted(mine, shown, sorter=sequence)]]
        return tuple(rows)


class _Graph:
    """Operations and transfers as nodes (:class:`~ppopt.timing.links.Network`), and what waits for what."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, pipeline = schedule, schedule.pipeline
        self.network, rows = network_in_turn(pipeline, schedule.order, begun(schedule))
        self.computations = self.network.computations
        self.index = pipeline.index
        self.numbers = numbers = np.array(self.network.number, dtype=np.int64)
        self.start = _starts(schedule)[halves(pipeline.index, numbers)[0]]
        duration = np.array(self.network.duration, dtype=np.int64)
        duration[: self.computations] = np.concatenate(schedule.duration)  # of a real run each operation has its own
        self.end = self.start + duration
        self.lead = of_stages(pipeline, numbers, pipeline.ticks.lead)
        self.tail = of_stages(pipeline, numbers, pipeline.ticks.tail)
        data = [np.array(of, dtype=np.int64) for of in (self.network.before, self.network.after, self.network.lag)]
        one = [np.array(row, dtype=np.int64) for row in rows]
        before, after = (np.concatenate([row[part] for row in one]) for part in (slice(None, -1), slice(1, None)))
        by_link = before >= self.computations
        self.before, self.after = np.concatenate((data[0], before)), np.concatenate((data[1], after))
        lag = np.concatenate((data[2], np.zeros(len(before), dtype=np.int64)))
        self.why = np.concatenate((np.full(len(data[0]), int(Wait.DATA)), np.where(by_link, int(Wait.LINK), int(Wait.DEVICE))))
        self.arrival = self.end[self.before] + lag
        self.binding = self.start[self.after] == (self.arrival if schedule.exact else self._latest())
        self._inputs(len(data[0]))

    def _inputs(self, count: int) -> None:
        """When the inputs of each node exist, and when they are where it runs; the first ``count`` waits are for data."""
        before, after = self.before[:count], self.after[:count]
        self.ready = self.schedule.begin + self.lead
        self.made = self.ready.copy()
        np.maximum.at(self.ready, after, self.arrival[:count])
        np.maximum.at(self.made, after, np.where(before < self.computations, self.end[before], self.ready[before]))

    def _latest(self) -> IntArray:
        """By wait the start of what waits where nothing that it waits for is later, which is what it waited for in a real run."""
        last = np.full(len(self.start), -1, dtype=np.int64)
        np.maximum.at(last, self.after, self.arrival)
        return np.where(self.arrival == last[self.after], self.start[self.after], -1)

    @cached_property
    def reloads(self) -> dict[int, tuple[int, int]]:
        """By the number of a backward that waits for a copy from the host: its begin, and when the backward may start."""
        found: dict[int, tuple[int, int]] = {}
        pipeline, slots = self.schedule.pipeline, self.index.stages * self.index.microbatches
        for row, start in zip(*self.schedule.copies, strict=True):
            family, microbatch = np.divmod(row, self.index.microbatches)
            margin = pipeline.ticks.margin[pipeline.route_by_microbatch[microbatch], family % self.index.stages]
            ready = start + durations(pipeline, row) + margin
            for number, since, until in zip(row.tolist(), start.tolist(), ready.tolist(), strict=True):
                if number >= Send.RELOAD * slots:
                    found |= {number + (kind - Send.RELOAD) * slots: (since, until) for kind in (Kind.B, Kind.I)}
        return found

    @cached_property
    def flags(self) -> IntArray:
        """By node what it waits for, but for memory."""
        flags = np.where((self.lead > 0) & (self.start == self.schedule.begin + self.lead), int(Wait.GATHER), 0)
        why = self.why[self.binding]
        queued = (self.before >= self.computations) & (self.start > self.ready)[self.before]
        why = np.where(queued[self.binding], why | int(Wait.LINK), why)
        np.bitwise_or.at(flags, self.after[self.binding], why)
        return flags

    @cached_property
    def path(self) -> list[int]:
        """The nodes of the critical path."""
        before, after, why = self.before[self.binding], self.after[self.binding], self.why[self.binding]
        rank = np.array([0, 2, 1])[np.searchsorted([Wait.DATA, Wait.DEVICE, Wait.LINK], why)]
        chosen = np.full(len(self.start), -1, dtype=np.int64)
        sequence = np.lexsort((-before, -rank))  # what is written last stays
        chosen[after[sequence]] = before[sequence]
        ends = (self.end + self.tail)[: self.computations]
        path = [int(ends.argmax())]
        while (node := int(chosen[path[-1]])) >= 0:
            path.append(node)
        return path[::-1]


def _starts(schedule: Schedule) -> IntArray:
    """By the number of each single operation its start; -1: it is not run."""
    index = schedule.pipeline.index
    times = np.full(index.size, -1, dtype=np.int64)
    rows = (*schedule.order.rows, *schedule.transfers.rows)
    for row, starts in zip(rows, (*schedule.start, *schedule.transfers.start), strict=True):
        for half in halves(index, row):
            times[half[half >= 0]] = starts[half >= 0]
    return times


class _Device:
    """One device: its memory, and the inputs of what it runs."""

    def __init__(self, graph: _Graph, device: int) -> None:
        self.graph, self.device = graph, device
        schedule = graph.schedule
        first, last = graph.network.offsets[device : device + 2]
        self.nodes = slice(first, last)
        self.start, self.end = graph.start[self.nodes], graph.end[self.nodes]
        self.ready, self.made = graph.ready[self.nodes], graph.made[self.nodes]
        amounts = schedule.pipeline.amounts
        self.limit = None if amounts.limit is None else int(amounts.limit[device])
        self.claimed, released = memory_changes(schedule.pipeline, schedule.order.rows[device])
        static = int(amounts.static[device])
        self.claims = np.concatenate(([static], static + np.cumsum(self.claimed)))
        """By number of operations, what so many have claimed, static memory included."""
        self.releases = np.concatenate(([0], np.cumsum(released)))

    def lacked_memory(self) -> BoolArray:
        """For each operation whether it had its data, but did not fit until something ended at its start."""
        count = len(self.start)
        if self.limit is None or not count:
            return np.zeros(count, dtype=np.bool_)
        ended = np.minimum(np.searchsorted(self.end, self.start, side="left"), np.arange(count))
        held = self.claims[:-1] - self.releases[ended]
        lacked: BoolArray = (self.claimed > 0) & (self.ready < self.start) & (held + self.claimed > self.limit)
        return lacked

    def idle(self) -> tuple[Idle, ...]:
        """When it is idle, and why."""
        begin, count = self.graph.schedule.begin, len(self.start)
        last = begin + self.graph.schedule.makespan
        if not count:
            return (Idle(begin, last, Cause.START, 0),) if begin < last else ()
        gaps = [Idle(begin, int(self.start[0]), Cause.START, 0)]
        any_ready = np.minimum.accumulate(self.ready[::-1])[::-1]
        for place in (np.flatnonzero(self.start[1:] > self.end[:-1]) + 1).tolist():
            gaps += self._between(place, int(any_ready[place]))
        gaps.append(Idle(int(self.end[-1]), last, Cause.END, count))
        return tuple(gap for gap in gaps if gap.since < gap.until)

    def _between(self, place: int, some: int) -> Iterator[Idle]:
        """The idle time before the operation at ``place``; some operation that is left has its inputs from ``some`` on."""
        since, until = int(self.end[place - 1]), int(self.start[place])
        made, ready, fits = int(self.made[place]), int(self.ready[place]), self._fits_from(place, some)
        stops = [*self._stopped(since, until), *self._reloaded(place)]
        if any(end == until for _, end in stops):
            stops.append((ready, until))  # its turn comes once that transfer has ended
        times = {made, ready, some, fits, *(time for stop in stops for time in stop)}
        edges = [since, *sorted(time for time in times if since < time < until), until]
        causes = []
        for time in edges[:-1]:
            if made <= time < ready:
                causes.append(Cause.LINK)
            elif time < some:
                causes.append(Cause.DATA)
            elif any(begin <= time < end for begin, end in stops):
                causes.append(Cause.LINK)
            else:
                causes.append(Cause.MEMORY if time < fits else Cause.ORDER)
        return merged(Idle(a, b, cause, place) for (a, b), cause in zip(pairwise(edges), causes, strict=True))

    def _fits_from(self, place: int, some: int) -> int:
        """From when on an operation that has its inputs fits, while what the device holds before ``place`` is held."""
        if self.limit is None:
            return some
        free = self.limit - int(self.claims[place] - self.releases[place])
        return min((int(ready[place]) for claim, ready in self._ready_by_claim.items() if claim <= free), default=NEVER)

    @cached_property
    def _ready_by_claim(self) -> dict[int, IntArray]:
        """By what operations claim: from each place on, the first time at which one of those has its inputs."""
        found: dict[int, IntArray] = {}
        for claim in np.unique(self.claimed).tolist():
            ready = np.where(self.claimed == claim, self.ready, NEVER)
            found[claim] = np.minimum.accumulate(ready[::-1])[::-1]
        return found

    def _stopped(self, since: int, until: int) -> list[tuple[int, int]]:
        """When transfers stop the device between two times."""
        starts, ends, latest = self._stops
        first, last = np.searchsorted(latest, since, side="right"), np.searchsorted(starts, until, side="left")
        found = zip(starts[first:last].tolist(), ends[first:last].tolist(), strict=True)
        return [(start, end) for start, end in found if end > since]

    def _reloaded(self, place: int) -> list[tuple[int, int]]:
        """From when to when an operation at ``place`` waits for the copy of its activation from the host, if it does."""
        begin, node = int(self.start[place]), self.nodes.start + place
        found = (copy for half in halves(self.graph.index, self.graph.numbers[node : node + 1]) for copy in half.tolist())
        copies = (self.graph.reloads[op] for op in found if op in self.graph.reloads)
        return [(since, begin) for since, until in copies if until == begin]

    @cached_property
    def _stops(self) -> tuple[IntArray, IntArray, IntArray]:
        """The transfers that stop the device, by their starts: starts, ends, and the latest end up to each."""
        graph = self.graph
        ends = graph.network.ends if graph.schedule.pipeline.links.blocking else []
        mine = np.array([graph.computations + place for place, pair in enumerate(ends) if self.device in pair], dtype=np.int64)
        mine = mine[np.argsort(graph.start[mine], kind="stable")]
        return graph.start[mine], graph.end[mine], np.maximum.accumulate(graph.end[mine])


def merged(idle: Iterable[Idle]) -> Iterator[Idle]:
    """Idle times that follow each other, those of one cause as one."""
    last: Idle | None = None
    for gap in idle:
        if last is not None and (last.cause, last.place) == (gap.cause, gap.place):
            last = last._replace(until=gap.until)
            continue
        if last is not None:
            yield last
        last = gap
    if last is not None:
        yield last
