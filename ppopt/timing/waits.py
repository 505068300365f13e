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


CAUSES = (Cause.START, Cause.DATA, Cause.LINK, Cause.MEMORY, Cause.ORDER, Cause.END)
"""In the sequence in which tables show them."""


class Idle(NamedTuple):
    """A device is idle, from ``since`` until ``until`` (ticks), for one cause."""

    since: int
    until: int
    cause: Cause
    place: int
    """The place of its next operation in its order; behind the last one: the number of its operations."""


class Gaps(NamedTuple):
    """When a device is idle, and why: what :class:`Idle` says of each gap, as arrays; the causes by their places in
    :data:`CAUSES`."""

    since: IntArray
    until: IntArray
    cause: IntArray
    place: IntArray

    @classmethod
    def of(cls, idle: Iterable[Idle]) -> Gaps:
        """Gaps one by one; those that last no time are left out."""
        rows = [(gap.since, gap.until, CAUSES.index(gap.cause), gap.place) for gap in idle if gap.since < gap.until]
        return cls(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)


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
            Step(int(graph.network.number[node]), machine, int(graph.start[node]), int(graph.end[node]))
            for node, machine in zip(graph.path, machines.tolist(), strict=True)
        )

    @cached_property
    def gaps(self) -> tuple[Gaps, ...]:
        """Per device when it is idle between the begin of the schedule and its end, and why; in the sequence of times."""
        return tuple(_Device(self._graph, device).gaps() for device in range(self.schedule.pipeline.devices))

    @cached_property
    def idle(self) -> tuple[tuple[Idle, ...], ...]:
        """The same gap by gap."""
        return tuple(
            tuple(Idle(a, b, CAUSES[cause], place) for a, b, cause, place in zip(*map(np.ndarray.tolist, gaps), strict=True))
            for gaps in self.gaps
        )

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
        self.numbers = numbers = self.network.number
        self.start = _starts(schedule)[halves(pipeline.index, numbers)[0]]
        duration = self.network.duration.copy()
        duration[: self.computations] = np.concatenate(schedule.duration)  # of a real run each operation has its own
        self.end = self.start + duration
        self.lead = of_stages(pipeline, numbers, pipeline.ticks.lead)
        self.tail = of_stages(pipeline, numbers, pipeline.ticks.tail)
        data = self.network.before, self.network.after, self.network.lag
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
    def reloads(self) -> IntArray:
        """By the number of an operation that waits for a copy from the host: the copy's begin, and when the operation may start;
        -1 for the others. Without copies it is empty."""
        found = np.full((2, self.index.size if self.schedule.copies.rows else 0), -1, dtype=np.int64)
        pipeline, slots = self.schedule.pipeline, self.index.stages * self.index.microbatches
        for row, start in zip(*self.schedule.copies, strict=True):
            family, microbatch = np.divmod(row, self.index.microbatches)
            margin = pipeline.ticks.margin[pipeline.route_by_microbatch[microbatch], family % self.index.stages]
            ready = start + durations(pipeline, row) + margin
            back = row >= Send.RELOAD * slots
            for kind in (Kind.B, Kind.I):
                found[:, row[back] + (kind - Send.RELOAD) * slots] = start[back], ready[back]
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

    def gaps(self) -> Gaps:
        """When it is idle, and why."""
        begin, count = self.graph.schedule.begin, len(self.start)
        last = begin + self.graph.schedule.makespan
        if not count:
            return Gaps.of([Idle(begin, last, Cause.START, 0)])
        first, behind = Idle(begin, int(self.start[0]), Cause.START, 0), Idle(int(self.end[-1]), last, Cause.END, count)
        rows = (Gaps.of([first]), self._between(np.flatnonzero(self.start[1:] > self.end[:-1]) + 1), Gaps.of([behind]))
        return Gaps(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))

    def _between(self, places: IntArray) -> Gaps:
        """The idle times before the operations at ``places``, in which the device is idle before each of them.

        A gap is cut at every time at which its cause may change; pieces of one cause that follow each other become one.
        """
        since, until = self.end[places - 1], self.start[places]
        made, ready = self.made[places], self.ready[places]
        some = np.minimum.accumulate(self.ready[::-1])[::-1][places]
        """From when on some operation that is left has its inputs."""
        fits = self._fits_from(places, some)
        stopped, begins, ends = self._stopped(places, since, until)
        own = np.tile(np.arange(len(places)), 4)
        cut, times = np.concatenate((own, stopped, stopped)), np.concatenate((made, ready, some, fits, begins, ends))
        edges = np.unique(np.concatenate((since, times[(since[cut] < times) & (times < until[cut])])))
        gap = np.searchsorted(since, edges, side="right") - 1
        # gaps have no time in common: a stop of another one is counted at its begin and at its end, or not at all
        begun, over = (
            np.searchsorted(np.sort(at.clip(since[stopped], until[stopped])), edges, side="right") for at in (begins, ends)
        )
        cases = [
            (Cause.LINK, (made[gap] <= edges) & (edges < ready[gap])),
            (Cause.DATA, edges < some[gap]),
            (Cause.LINK, begun > over),
            (Cause.MEMORY, edges < fits[gap]),
        ]
        code = np.select([holds for _, holds in cases], [CAUSES.index(cause) for cause, _ in cases], CAUSES.index(Cause.ORDER))
        new = np.ones(len(edges), dtype=np.bool_)
        new[1:] = (gap[1:] != gap[:-1]) | (code[1:] != code[:-1])
        gap, code, edges = gap[new], code[new], edges[new]
        following = np.append(edges[1:], NEVER)
        return Gaps(edges, np.minimum(following, until[gap]), code, places[gap])

    def _fits_from(self, places: IntArray, some: IntArray) -> IntArray:
        """From when on an operation that has its inputs fits, while what the device holds before ``places`` is held; ``some``:
        from when on one has its inputs."""
        if self.limit is None:
            return some
        free = self.limit - (self.claims - self.releases)[places]
        fits = np.full(len(places), NEVER, dtype=np.int64)
        for claim, ready in self._ready_by_claim.items():
            np.minimum(fits, ready[places], out=fits, where=claim <= free)
        return fits

    @cached_property
    def _ready_by_claim(self) -> dict[int, IntArray]:
        """By what operations claim: from each place on, the first time at which one of those has its inputs."""
        found: dict[int, IntArray] = {}
        for claim in np.unique(self.claimed).tolist():
            ready = np.where(self.claimed == claim, self.ready, NEVER)
            found[claim] = np.minimum.accumulate(ready[::-1])[::-1]
        return found

    def _stopped(self, places: IntArray, since: IntArray, until: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """From when to when transfers stop the device before its operations at ``places``, or these wait for copies from the
        host: which of the places, begins, ends."""
        starts, ends, latest = self._stops
        first, last = np.searchsorted(latest, since, side="right"), np.searchsorted(starts, until, side="left")
        many = np.maximum(last - first, 0)
        which = np.repeat(np.arange(len(places)), many)
        stop = np.arange(len(which)) + np.repeat(first - np.cumsum(many) + many, many)
        stays = ends[stop] > since[which]
        which, stop = which[stays], stop[stays]
        found = [(which, starts[stop], ends[stop])]
        numbers, reloads = self.graph.numbers[self.nodes][places], self.graph.reloads
        for half in halves(self.graph.index, numbers) if reloads.size else ():
            begun, ready = reloads[:, half]
            late = np.flatnonzero((half >= 0) & (ready == until))
            found.append((late, begun[late], until[late]))
        which, begins, stops = (np.concatenate(parts) for parts in zip(*found, strict=True))
        turn = np.unique(which[stops == until[which]])  # its turn comes once that transfer has ended
        return np.append(which, turn), np.append(begins, self.ready[places[turn]]), np.append(stops, until[turn])

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
