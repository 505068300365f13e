"""Large neighbourhood search: what runs within a window of time is arranged anew by CP-SAT, then within another.

Shaw, "Using constraint programming and local search methods to solve vehicle routing problems" (CP 1998). What comes before the
window and behind it keeps its order, so all that counts of it are the longest paths through it: the model has the operations
of the window alone, whatever the size of the pipeline is.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_left
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from ppopt.bounds import Objective
from ppopt.bounds.searching import search_all
from ppopt.op import Kind
from ppopt.pipeline import IntArray
from ppopt.schedule import Order, Schedule, halves
from ppopt.solvers.cpsat import Progress, limit, propagating
from ppopt.solvers.interrupt import check
from ppopt.solvers.outcome import Limits, Outcome
from ppopt.timing import in_turn
from ppopt.timing.paths import NEVER, Paths, largest_mean, shortest_spans

_FIRST, _LEAST = 120, 12
"""Operations in a window at first, and at least."""
_LARGER, _SMALLER = 1.2, 0.85
"""How that changes: after a window was searched through, and after it was not."""
_LOOSE, _LOOSELY = 0.15, 30
"""Share of the rounds for spans in which begins may move, and operations in a window there at first."""
_PATIENCE: dict[Objective, float] = {"makespan": 0.25, "span": 1.0}
_MOST_PATIENCE = 2.0
"""Seconds for one window at first, and at most."""
_LONGER = 1.3
"""How they grow where no window of a round was any good; and shrink where one was."""
_BUILD = 5e-5
"""Deterministic seconds for making a constraint; about what it takes."""
_LONG = -NEVER // 2
"""Paths below ``-_LONG`` do not exist."""


def improved(
    schedule: Schedule, *, objective: Objective, lower: int, limits: Limits, progress: Progress | None = None
) -> Outcome:
    """The best schedule found from this one on, with its pairs and its ways to run each backward; none where none is better.

    ``lower``: a proved bound in ticks, where the search is over. As many windows are searched at a time as there are workers.
    Ctrl-C stops it and is noted in the outcome. For pipelines without traffic of the devices' own.
    """
    search = _Search(schedule, objective, lower, limits)
    try:
        search.run(progress)
    except KeyboardInterrupt:
        search.interrupted = True
    return Outcome(search.best if search.value < schedule.objective(objective) else None, lower, search.spent, search.interrupted)


class _Search:
    def __init__(self, schedule: Schedule, objective: Objective, lower: int, limits: Limits) -> None:
        self.best, self.objective, self.lower, self.limits = schedule, objective, lower, limits
        self.value = schedule.objective(objective)
        self.interrupted = False
        self.begun, self.counted = time.monotonic(), 0.0
        self.chance = random.Random(limits.seed)
        self.patience = _PATIENCE[objective]
        self.size = {False: float(_FIRST), True: float(_LOOSELY)}
        """Operations in a window, and in a loose one."""
        self.loose = False

    @property
    def spent(self) -> float:
        """Seconds, deterministic ones in deterministic mode."""
        return self.counted if self.limits.deterministic else time.monotonic() - self.begun

    def run(self, progress: Progress | None) -> None:
        """Until the bound is met, everything was in a window, or the time is over."""
        around = None
        while not self.interrupted and self.value > self.lower and self.spent < self.limits.seconds:
            check()
            around = around or _Around(self.best, self.objective)
            if self.round(around):
                around = None
                if progress is not None:
                    progress(self.value, self.lower)
            elif self.size[self.objective == "span"] >= 2 * len(around.start):
                return

    def round(self, around: _Around) -> bool:
        """Search one window per worker; whether the best got better."""
        if self.objective == "span":
            self.loose = self.size[False] >= 2 * len(around.start) or self.chance.random() < _LOOSE
        windows = []
        for _ in range(self.limits.threads):
            window = _Window(around, *self.span(around), loose=self.loose)
            solver = propagating(self.objective)
            seconds = max(0.01, min(self.patience, self.limits.seconds - self.spent))
            limit(solver, replace(self.limits, seconds=seconds, gap=0, seed=self.chance.randrange(2**31)), workers=1)
            windows.append((window, solver))
        statuses, self.interrupted = search_all([(solver, window.model, None) for window, solver in windows])
        value = self.value
        for (window, solver), status in zip(windows, statuses, strict=True):
            self.counted += solver.response_proto.deterministic_time + _BUILD * len(window.model.proto.constraints)
            factor = _LARGER if status == cp_model.OPTIMAL else _SMALLER
            self.size[self.loose] = max(_LEAST, self.size[self.loose] * factor)
            if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) and solver.objective_value < value:
                self.keep(window.schedule(solver))
        better = self.value < value
        longer = self.patience / _LONGER if better else self.patience * _LONGER
        self.patience = min(max(longer, _PATIENCE[self.objective]), _MOST_PATIENCE)
        return better

    def keep(self, schedule: Schedule | None) -> None:
        """Keep it if it is the best."""
        if schedule is not None and schedule.within_memory and schedule.objective(self.objective) < self.value:
            self.best, self.value = schedule, schedule.objective(self.objective)

    def span(self, around: _Around) -> tuple[int, int]:
        """Since when and until when operations start that are in a window of about the current size."""
        times, size = around.times, round(self.size[self.loose])
        at = self.chance.randrange(-size // 2, max(1, len(times) - size // 2))
        since = times[at] if at > 0 else times[0]
        return since, times[at + size] if at + size < len(times) else times[-1] + 1


class _Hold(NamedTuple):
    """Memory of a device, held from the start of one node to the end of another."""

    device: int
    first: int
    last: int
    amount: int


class _Around:
    """A schedule, and the longest paths to and from each of its nodes (:class:`~ppopt.timing.paths.Paths`).

    For the makespan paths begin and end at the schedule's own begin and end; for the device span at each device's first and
    last operation: a column each.
    """

    def __init__(self, schedule: Schedule, objective: Objective) -> None:
        self.given, self.objective = schedule, objective
        self.paths = paths = Paths(schedule)
        self.duration = paths.duration
        nodes = len(self.duration)
        if objective == "makespan":
            self.head = paths.heads(np.zeros((nodes, 1), dtype=np.int64))
            self.tail = paths.tails(np.zeros((nodes, 1), dtype=np.int64))
            self.start = self.head[:, 0].tolist()
        else:
            self.head, self.tail = paths.heads(paths.firsts()), paths.tails(paths.lasts())
            self.start = np.concatenate((*schedule.start, *schedule.transfers.start)).tolist()
        self.times = sorted(self.start)
        self.value = schedule.objective(objective)
        network = paths.network
        self.edges = tuple(np.array(column, dtype=np.int64) for column in (network.before, network.after, network.lag))
        """What the data demands: before, after, lag."""
        self.data = network.following()
        self.chain = self._chain()
        self.holds = self._holds()

    def _chain(self) -> list[int]:
        """Per node, what comes next of its kind and stage (-1: nothing)."""
        network = self.paths.network
        family = halves(network.pipeline.index, np.array(network.number))[0] // network.pipeline.microbatches
        latest: dict[int, int] = {}
        chain = [-1] * len(self.start)
        for node in self.paths.sequence:
            before = latest.get(int(family[node]))
            if before is not None and self.start[before] + self.duration[before] <= self.start[node]:
                chain[before] = node
            latest[int(family[node])] = node
        return chain

    def _holds(self) -> list[_Hold]:
        pipeline = self.paths.network.pipeline
        index, amounts = pipeline.index, pipeline.amounts
        if amounts.limit is None:
            return []
        place = self.paths.network.node.tolist()
        slots = index.stages * index.microbatches
        holds = []
        for slot in range(slots):
            stage, microbatch = divmod(slot, index.microbatches)
            route = pipeline.route_of_microbatch[microbatch]
            whole, rest = int(amounts.activation[route, stage]), int(amounts.retained[route, stage])
            device, forward = pipeline.routes[route][stage], place[slot]
            if place[Kind.B * slots + slot] >= 0:
                holds.append(_Hold(device, forward, place[Kind.B * slots + slot], whole))
            else:
                holds.append(_Hold(device, forward, place[Kind.I * slots + slot], whole - rest))
                holds.append(_Hold(device, forward, place[Kind.W * slots + slot], rest))
        return [hold for hold in holds if hold.amount]


class _Row(NamedTuple):
    """Nodes that run one after the other; the place of the first one in the window, and of the first one behind it."""

    nodes: list[int]
    low: int
    high: int


class _Window:
    """The model of what starts from ``since`` on and before ``until``.

    For spans the devices' begins may move if it is ``loose``. Where they stay, starts are known as well as for the makespan,
    windows may be several times as large, and some schedules are out of reach.
    """

    def __init__(self, around: _Around, since: int, until: int, *, loose: bool = False) -> None:
        self.around, self.loose = around, loose
        self.model = model = cp_model.CpModel()
        start, duration = around.start, around.duration
        self.since, self.until = since, until
        self.free = [node for node, time in enumerate(start) if since <= time < until]
        self.rows = [
            _Row(row, *(bisect_left(row, time, key=start.__getitem__) for time in (since, until))) for row in around.paths.rows
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
                    model.add(self.x[after] >= x + (duration[node] + lag))
        for row, low, high in self.rows:
            if high - low > 1:
                model.add_no_overlap([model.new_fixed_size_interval_var(self.x[n], duration[n], "") for n in row[low:high]])
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
        for device, row in enumerate(around.paths.devices):
            if row:
                first, last = around.start[row[0]], around.start[row[-1]] + around.duration[row[-1]]
                moved = reach if self.loose else 0
                begins[device] = model.new_int_var(first - moved, first + moved, "begin")
                ends[device] = model.new_int_var(last - reach, last + reach, "end")
                model.add(span >= ends[device] - begins[device])
                model.add_hint(begins[device], first)
                model.add_hint(ends[device], last)
        for node in self.free:
            x = self.x[node] = model.new_int_var(around.start[node] - reach, around.start[node] + reach, "")
            for device, begin in begins.items():
                if heads[node][device] > -_LONG:
                    model.add(x >= begin + int(heads[node][device]))
                if tails[node][device] > -_LONG:
                    model.add(ends[device] >= x + (around.duration[node] + int(tails[node][device])))
        for (device, begin), (other, end) in product(begins.items(), ends.items()):
            if direct[device, other] > -_LONG:
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
        heads = {node: np.full(head.shape[1], NEVER) for node in self.free}
        tails = {node: np.full(tail.shape[1], NEVER) for node in self.free}

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
            if around.objective == "makespan" or place >= len(around.paths.devices) or not row:
                continue
            for node in row[low:high]:
                if not low:
                    heads[node][place] = max(heads[node][place], 0)
                if high == len(row):
                    tails[node][place] = max(tails[node][place], 0)
            if low == len(row):
                direct[:, place] = np.maximum(direct[:, place], head[row[-1]] + duration[row[-1]])
            if not high:
                direct[place] = np.maximum(direct[place], tail[row[0]] + duration[row[0]])
        return heads, tails, direct

    def _memory(self) -> None:
        """What is held within the window, beside what is held throughout."""
        around, model = self.around, self.model
        pipeline = around.given.pipeline
        limits = pipeline.amounts.limit
        if limits is None:
            return
        spans: dict[int, list[tuple[_Hold, cp_model.IntervalVar]]] = {}
        room = (limits - pipeline.amounts.static).tolist()
        begin, end = (bound(around.start) + sign * 4 * (self.until - self.since) for bound, sign in ((min, -1), (max, 1)))
        for hold in around.holds:
            first, last = self.x.get(hold.first), self.x.get(hold.last)
            if first is None and last is None:
                if around.start[hold.first] < self.since and around.start[hold.last] >= self.until:
                    room[hold.device] -= hold.amount
                continue
            since = begin if first is None else first
            until = end if last is None else last + around.duration[hold.last]
            size = model.new_int_var(0, end - begin, "")
            spans.setdefault(hold.device, []).append((hold, model.new_interval_var(since, size, until, "")))
        for device, held in spans.items():
            if sum(hold.amount for hold, _ in held) > room[device]:
                model.add_cumulative([interval for _, interval in held], [hold.amount for hold, _ in held], room[device])

    def schedule(self, solver: cp_model.CpSolver) -> Schedule | None:
        """What was found, in the best times of its order; ``None``: what takes no time passes each other."""
        around, network = self.around, self.around.paths.network
        pipeline, devices = network.pipeline, network.pipeline.devices
        found = {node: solver.value(x) for node, x in self.x.items()}
        away = 2 * (abs(min(around.start)) + max(around.start) + around.value + 1) + 16 * (self.until - self.since)
        times = np.full(pipeline.index.size, np.nan)  # good for the order alone: for spans the window may lie anywhere
        for half in halves(pipeline.index, np.array(network.number)):
            for node, op in enumerate(half.tolist()):
                if op >= 0:
                    times[op] = found.get(node, around.start[node] + (-away if around.start[node] < self.since else away))
        rows = []
        for row, low, high in self.rows[:devices]:
            nodes = sorted(row[low:high], key=lambda node: (found[node], around.duration[node] > 0))
            rows.append(np.array([network.number[node] for node in [*row[:low], *nodes, *row[high:]]], dtype=np.int64))
        try:
            schedule = in_turn(pipeline, Order(pipeline.index, tuple(rows)), times)
        except ValueError:
            return None
        return shortest_spans(schedule) if around.objective == "span" else schedule
