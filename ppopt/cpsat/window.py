"""The model of what runs within a window of a schedule, everything else in the order that it has."""

from __future__ import annotations

from bisect import bisect_left
from itertools import product
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from ppopt.constraints import rules_of
from ppopt.cpsat.around import Around
from ppopt.cpsat.posting import Hold, interval, machine, reservoir, waits
from ppopt.cpsat.running import Solution
from ppopt.pipeline import IntArray
from ppopt.schedule import Order, Schedule, halves
from ppopt.solvers.outcome import timed_with_copies
from ppopt.timing import CyclicOrder, in_turn
from ppopt.timing.links import FloatArray
from ppopt.timing.paths import NEVER, largest_mean, shortest_spans, there_is


class Turns(NamedTuple):
    """Nodes that run one after the other; the place of the first one in the window, and of the first one behind it."""

    nodes: list[int]
    low: int
    high: int


class Window:
    """The model of what starts from ``since`` on and before ``until``.

    For spans ``begins_move`` says whether the devices' begins may. Where they stay, starts are known as well as for the makespan
    and windows may be several times as large, but some schedules are out of reach.
    """

    def __init__(self, around: Around, since: int, until: int, *, begins_move: bool = False) -> None:
        self.around, self.begins_move = around, begins_move
        self.model = model = cp_model.CpModel()
        start, duration = around.start, around.duration
        self.since, self.until = since, until
        self.free = [node for node, time in enumerate(start) if since <= time < until]
        self.rows = [
            Turns(row, *(bisect_left(row, time, key=start.__getitem__) for time in (since, until))) for row in around.paths.rows
        ]
        self.x: dict[int, cp_model.IntVar] = {}
        if around.objective == "makespan":
            self._makespan()
        else:
            self._span()
        for node, x in self.x.items():
            model.add_hint(x, start[node])
            for after, lag in [*around.data[node], (around.chain[node], 0)]:
                if after in self.x:
                    waits(model, x, self.x[after], duration[node] + lag)
        for row, low, high in self.rows:
            machine(model, [interval(model, self.x[node], duration[node]) for node in row[low:high]])
        self._memory()

    def _makespan(self) -> None:
        """Nodes start where their tails leave it possible to be no worse than the schedule is."""
        around, value = self.around, self.around.value
        heads, tails, direct = self._outside()
        end = self.model.new_int_var(min(value, max(0, int(direct[0, 0]))), value, "makespan")
        for node in self.free:
            until = around.duration[node] + max(0, int(tails[node][0]))
            x = self.x[node] = self.model.new_int_var(max(0, int(heads[node][0])), value - until, "")
            self.model.add(end >= x + until)
        self.model.add_hint(end, value)
        self.model.minimize(end)

    def _span(self) -> None:
        """Every device's begin and end, as far from the nodes as the paths to them are long."""
        around, value, model = self.around, self.around.value, self.model
        heads, tails, direct = self._outside()
        reach = 2 * (self.until - self.since)
        busy = [device for device, row in enumerate(around.paths.devices) if row]
        least = largest_mean(direct[np.ix_(busy, busy)])
        span = model.new_int_var(min(value, max(0, least)), value, "span")
        begins, ends = {}, {}
        for device, known in enumerate(around.given.spans):
            if known is not None:
                first, last = known
                moved = reach if self.begins_move else 0
                begins[device] = model.new_int_var(first - moved, first + moved, "begin")
                ends[device] = model.new_int_var(last - reach, last + reach, "end")
                model.add(span >= ends[device] - begins[device])
                model.add_hint(begins[device], first)
                model.add_hint(ends[device], last)
        for node in self.free:
            x = self.x[node] = model.new_int_var(around.start[node] - reach, around.start[node] + reach, "")
            for device, begin in begins.items():
                if there_is(heads[node][device]):
                    model.add(x >= begin + int(heads[node][device]))
                if there_is(tails[node][device]):
                    model.add(ends[device] >= x + (around.duration[node] + int(tails[node][device])))
        for (device, begin), (other, end) in product(begins.items(), ends.items()):
            if there_is(direct[device, other]):
                model.add(end >= begin + int(direct[device, other]))
        model.add_hint(span, value)
        model.minimize(span)

    def _outside(self) -> tuple[dict[int, IntArray], dict[int, IntArray], IntArray]:
        """By node of the window the longest paths to its start and from its end that lead through no other node of it, by column;
        and the longest paths ``[from, to]`` that pass the window by."""
        around, head, tail = self.around, self.around.head, self.around.tail
        start, duration = np.array(around.start), np.array(around.duration)
        before, after, lag = around.edges
        early, late = start < self.since, start >= self.until
        heads = {node: around.first[node].copy() for node in self.free}
        tails = {node: around.last[node].copy() for node in self.free}

        def passing(a: IntArray, b: IntArray, wait: IntArray) -> IntArray:
            to, onwards = head[a] + (duration[a] + wait)[:, None], tail[b] + duration[b][:, None]
            longest: IntArray = (to[:, :, None] + onwards[:, None, :]).max(axis=0)
            return longest

        direct = np.full((head.shape[1], tail.shape[1]), NEVER)
        across = early[before] & late[after]
        if across.any():
            direct = np.maximum(direct, passing(before[across], after[across], lag[across]))
        for a, b, wait in zip(
            *(column[early[before] & ~early[after] & ~late[after]].tolist() for column in around.edges), strict=True
        ):
            np.maximum(heads[b], head[a] + (duration[a] + wait), out=heads[b])
        for a, b, wait in zip(
            *(column[late[after] & ~early[before] & ~late[before]].tolist() for column in around.edges), strict=True
        ):
            np.maximum(tails[a], tail[b] + (duration[b] + wait), out=tails[a])
        for place, (row, low, high) in enumerate(self.rows):
            if low and low == high < len(row):
                direct = np.maximum(direct, passing(*(np.array([n]) for n in (row[low - 1], row[low], 0))))
            for node in row[low:high]:
                if low:
                    np.maximum(heads[node], head[row[low - 1]] + duration[row[low - 1]], out=heads[node])
                if high < len(row):
                    np.maximum(tails[node], tail[row[high]] + duration[row[high]], out=tails[node])
            if place < len(around.ended):
                column = 0 if around.objective == "makespan" else place
                if low:
                    direct[:, column] = np.maximum(direct[:, column], around.ended[place][low - 1])
                if high < len(row):
                    direct[column] = np.maximum(direct[column], around.begun[place][high])
        return heads, tails, direct

    def _memory(self) -> None:
        """What is held within the window, beside what is held throughout."""
        around, model, pipeline = self.around, self.model, self.around.given.pipeline
        if pipeline.amounts.limit is None:
            return
        held: dict[int, list[Hold]] = {}
        room = pipeline.amounts.room.tolist()
        begin, end = (bound(around.start) + sign * 4 * (self.until - self.since) for bound, sign in ((min, -1), (max, 1)))
        for device, before, after, amount in around.holds:
            first, last = self.x.get(before), self.x.get(after)
            if first is None and last is None:
                if around.start[before] < self.since and around.start[after] >= self.until:
                    room[device] -= amount
                continue
            since = begin if first is None else first
            until = end if last is None else last + around.duration[after]
            held.setdefault(device, []).append(Hold(since, until, amount, end - begin))
        for device, holds in held.items():
            reservoir(model, holds, room[device])

    def schedule(self, solution: Solution) -> Schedule | None:
        """What was found, in the best times of its order; ``None``: what takes no time passes each other."""
        around, network = self.around, self.around.paths.network
        pipeline, devices = network.pipeline, network.pipeline.devices
        found = {node: solution.value(x) for node, x in self.x.items()}
        away = 2 * (abs(min(around.start)) + max(around.start) + around.value + 1) + 16 * (self.until - self.since)
        times = np.full(pipeline.index.size, np.nan)  # good for the order alone: for spans the window may lie anywhere
        for half in halves(pipeline.index, network.number):
            for node, op in enumerate(half.tolist()):
                if op >= 0:
                    times[op] = found.get(node, around.start[node] + (-away if around.start[node] < self.since else away))
        if pipeline.engines:
            return self._with_copies(times)
        rows = []
        for row, low, high in self.rows[:devices]:
            nodes = sorted(row[low:high], key=lambda node: (found[node], around.duration[node] > 0))
            rows.append(network.number[[*row[:low], *nodes, *row[high:]]])
        try:
            schedule = in_turn(pipeline, Order(pipeline.index, tuple(rows)), times)
        except ValueError:
            return None
        return shortest_spans(schedule) if around.objective == "span" else schedule

    def _with_copies(self, times: FloatArray) -> Schedule | None:
        """The earliest times in which what claims memory waits for what is given back before, in the order of these times."""
        around, network = self.around, self.around.paths.network
        pipeline, numbers = network.pipeline, network.number
        starts = times[halves(pipeline.index, numbers)[0]].astype(np.int64)
        starts -= starts.min()
        try:
            return timed_with_copies(pipeline, rules_of(pipeline), numbers, starts, around.objective, 1, 1)
        except CyclicOrder:
            return None
