"""What of a schedule counts for a window of it: the longest paths to each operation and from it, and what is held."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ppopt.op import Kind, Send
from ppopt.pipeline import IntArray
from ppopt.schedule import Objective, Schedule, halves, of_stages
from ppopt.timing.copies import settled_memory
from ppopt.timing.demands import NO_DEMANDS, when
from ppopt.timing.paths import Paths, around


class Held(NamedTuple):
    """Memory of a device, held from the start of one node to the end of another."""

    device: int
    first: int
    last: int
    amount: int


class Around:
    """A schedule, and the longest paths to and from each of its nodes (:class:`~ppopt.timing.paths.Paths`).

    For the makespan paths begin and end at the schedule's own begin and end; for the device span at those of each device: a
    column each. What a device does before and after its operations is part of them (``first``, ``last``).

    Copies to the host are nodes, too. Who waits there for memory that is given back, as it is in the schedule, is part of the
    paths around a window, and open within it.
    """

    def __init__(self, schedule: Schedule, objective: Objective) -> None:
        self.given, self.objective = schedule, objective
        copies = bool(schedule.pipeline.engines)
        memory = settled_memory(schedule.pipeline, *when(schedule)) if copies else NO_DEMANDS
        self.paths = paths = Paths(schedule, memory, copies=copies)
        self.duration = paths.duration
        nodes = len(self.duration)
        ticks, numbers = schedule.pipeline.ticks, paths.network.number
        if objective == "makespan":
            self.first, self.last = (of_stages(schedule.pipeline, numbers, of)[:, None] for of in (ticks.lead, ticks.tail))
        else:
            self.first, self.last = around(paths)
        self.head, self.tail = paths.heads(self.first), paths.tails(self.last)
        """By node and column the longest paths to its start and from its end."""
        given = (*schedule.start, *schedule.transfers.start)
        self.start: list[int] = (self.head[:, 0] if objective == "makespan" else np.concatenate(given)).tolist()
        self._passed()
        self.times = sorted(self.start)
        self.value = schedule.objective(objective)
        network = paths.network
        self.edges = network.before, network.after, network.lag
        """What the data demands: before, after, lag."""
        self.data = (Paths(schedule, copies=True).network if copies else network).following()
        self._add_turns()
        self.chain = [-1] * nodes if copies else self._chain()
        self.holds = self._holds()

    def _passed(self) -> None:
        """By row, in its order: the longest paths to the end of what its device does after an operation or one before it,
        ``ended``; and from the begin of what it does before an operation or one behind it, ``begun``."""
        duration = np.array(self.duration)[:, None]
        columns = [0 if self.objective == "makespan" else place for place in range(len(self.paths.rows))]
        self.ended, self.begun = list[IntArray](), list[IntArray]()
        for row, column in zip(self.paths.rows, columns, strict=True):
            if column >= self.first.shape[1]:
                break
            last, first = self.last[row, column, None], self.first[row, column, None]
            self.ended.append(np.maximum.accumulate(self.head[row] + duration[row] + last, axis=0))
            self.begun.append(np.maximum.accumulate((self.tail[row] + duration[row] + first)[::-1], axis=0)[::-1])

    def _add_turns(self) -> None:
        """The order in which microbatches that differ run, and the pieces of a sequence, belongs to the data."""
        for before, after in zip(*(of.tolist() for of in self.paths.network.turns()), strict=True):
            self.data[before].append((after, 0))

    def _chain(self) -> list[int]:
        """Per node, what comes next of its kind and stage (-1: nothing)."""
        network = self.paths.network
        family = halves(network.pipeline.index, network.number)[0] // network.pipeline.microbatches
        latest: dict[int, int] = {}
        chain = [-1] * len(self.start)
        for node in self.paths.sequence:
            before = latest.get(int(family[node]))
            if before is not None and self.start[before] + self.duration[before] <= self.start[node]:
                chain[before] = node
            latest[int(family[node])] = node
        return chain

    def _holds(self) -> list[Held]:
        pipeline = self.paths.network.pipeline
        index, amounts = pipeline.index, pipeline.amounts
        if amounts.limit is None:
            return []
        place = self.paths.network.node.tolist()
        slots = index.stages * index.microbatches
        brief = amounts.more_working
        holds, tables = [], (amounts.activation, amounts.kept, amounts.rebuilt)
        for slot in range(slots):
            stage, microbatch = divmod(slot, index.microbatches)
            route = pipeline.route_of_microbatch[microbatch]
            whole, kept, more = (int(of[route, stage]) for of in tables)
            device, forward = pipeline.routes[route][stage], place[slot]
            if device != pipeline.device_by_kind[route, Kind.B, stage]:
                continue  # what binds says what is held there (:func:`~ppopt.constraints.memory_between`)
            full, input_, weight, out, back = (
                place[kind * slots + slot] for kind in (Kind.B, Kind.I, index.weights[-1], Send.OFFLOAD, Send.RELOAD)
            )
            own = [(full, whole)] if full >= 0 else [(input_, whole - kept), (weight, kept)]
            left = int(amounts.away[route, stage]) if out >= 0 else 0
            for last, amount in own:
                part = min(amount, left)
                left -= part
                holds += [Held(device, forward, out, part), Held(device, back, last, part)]
                holds.append(Held(device, forward, last, amount - part))
            if full < 0:
                holds.append(Held(device, input_, weight, more))
            backwards = [place[row * slots + slot] for row in (Kind.B, Kind.I, *index.weights)]
            holds += [Held(device, node, node, int(brief[route, device])) for node in backwards if node >= 0]
        return [hold for hold in holds if hold.amount]
