"""How fast microbatches can follow each other where memory is tight, and what the ends cost: exact, from the state graph.

*Least times.* Let ``w[n]`` be the least times to the end, by state, with ``n`` microbatches that have yet to begin. They follow
from ``w[n - 1]`` alone; adding the same to all of ``w[n - 1]`` adds it to all of ``w[n]``, and nothing in ``w[n]`` falls where
something in ``w[n - 1]`` rises. So what ``step`` more microbatches cost at least, from whatever state, they cost again and again:

    w[n] >= w[n - step] + rise  in every state   =>   w[n + j] >= w[n - step + j] + rise   for every j >= 0,

a bound for any number of microbatches. It is the optimum where the way that takes ``w[n]`` comes to a state twice and by the
second time has lost no more than that: what is between is repeated as often as needed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ppopt.bounds.bound import Bound, Objective, check_objective
from ppopt.bounds.state_graph import StateGraph, state_graph_of
from ppopt.constraints import FamilyGraph, operations, pairs_save_time, relaxed_graphs, splitting_is_free
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order

Times = npt.NDArray[np.int32]

_FAR = 2**30
_STEPS = 4
"""Most steps of the coarse grid in one operation."""
_FINER, _LESS = 64, 4
"""Of a finer one; and by which factor less is lost there."""
_LONGEST = 24
"""Most microbatches over which the cost of more of them is compared."""
_HELD = 2**27
"""Most least times that are held at once, each row counted as ``_ROW`` of them at least: each takes a time of its own."""
_ROW = 2**14
_ALIKE = Fraction(19, 20)
"""Devices that need at least this part of the longest time for what they hold are as slow as the slowest."""


class _Edges(NamedTuple):
    """Edges by source: those of ``heads[k]`` begin at ``at[k]``."""

    heads: npt.NDArray[np.int32]
    at: IntArray
    target: npt.NDArray[np.int32]
    time: npt.NDArray[np.int16]

    @classmethod
    def of(cls, graph: StateGraph, chosen: npt.NDArray[np.bool_] | IntArray, shift: int = 0) -> _Edges:
        """Those ``chosen``; targets are counted from the state ``shift``."""
        source = graph.source[chosen]
        at = np.flatnonzero(np.diff(source, prepend=-1))
        return cls(source[at], at, graph.target[chosen] - np.int32(shift), graph.time[chosen])

    def least(self, row: Times) -> Times:
        """Per head, the least time by one of its edges, if ``row`` has that from their targets on."""
        return np.asarray(np.minimum.reduceat(row[self.target] + self.time, self.at))


class LeastTimes:
    """Least times to the end: ``rows[n]`` with ``n`` microbatches that have yet to begin, by open state; ``rows[0]`` by closed.

    ``_FAR`` where there is no way: too many activations of some stages can leave no room for what would release them.
    """

    def __init__(self, graph: StateGraph) -> None:
        self.graph = graph
        opens, closes = graph.target < graph.open, graph.target >= graph.open
        self._last = _Edges.of(graph, graph.begun & closes, graph.open)
        self._begin = _Edges.of(graph, graph.begun & opens)
        self._layers = self._by_depth(~graph.begun & opens)
        closed = np.full(graph.states, _FAR, dtype=np.int32)
        closed[graph.open] = 0
        for layer in self._by_depth(~graph.begun & closes):
            closed[layer.heads] = np.minimum(layer.least(closed), _FAR)
        self.rows: list[Times] = [closed[graph.open :]]

    def _by_depth(self, chosen: npt.NDArray[np.bool_]) -> list[_Edges]:
        """Those edges, the depth of whose sources rises."""
        places = np.flatnonzero(chosen)
        depth = self.graph.depth[self.graph.source[places]]
        bounds = np.flatnonzero(np.diff(depth, prepend=-1, append=-1))
        return [_Edges.of(self.graph, places[a:b]) for a, b in pairwise(bounds)]

    def add(self) -> None:
        """The row of one more microbatch."""
        row = np.full(self.graph.open, _FAR, dtype=np.int32)
        edges = self._begin if len(self.rows) > 1 else self._last
        row[edges.heads] = np.minimum(edges.least(self.rows[-1]), _FAR)
        for layer in self._layers:
            row[layer.heads] = np.minimum(row[layer.heads], layer.least(row))
        self.rows.append(row)

    def rise(self, step: int, stride: int = 1) -> int:
        """By how much the last row is above that ``step`` before at least, in every ``stride``-th state."""
        row, before = self.rows[-1][::stride], self.rows[-1 - step][::stride]
        return int((row - before).min(where=row < _FAR, initial=_FAR))

    @property
    def longest(self) -> int:
        """The largest number of the last row."""
        row = self.rows[-1]
        return int(row.max(where=row < _FAR, initial=0))

    def way(self, microbatches: int) -> Way:
        """A shortest way from the empty state."""
        graph = self.graph
        state, left = 0, microbatches
        states, lefts, begun = [state], [left], []
        while state != graph.open:
            first, last = np.searchsorted(graph.source, np.array([state, state + 1], dtype=np.int32)).tolist()
            options = []
            for edge in range(first, last):
                target, begins = int(graph.target[edge]), bool(graph.begun[edge])
                after = left - begins
                if (target >= graph.open) == (after == 0):
                    rest = int(self.rows[after][target - (graph.open if after == 0 else 0)])
                    options.append((int(graph.time[edge]) + rest, target, begins))
            _, state, begins = min(options)
            left -= begins
            states.append(state)
            lefts.append(left)
            begun.append(begins)
        passed = graph.behind[states]
        starts = passed[:-1] + np.array(begun, dtype=np.int16)[:, None] - passed[1:]
        times = [int(self.rows[n][s - (graph.open if n == 0 else 0)]) for s, n in zip(states, lefts, strict=True)]
        return Way(np.array(states), np.array(lefts), times[0] - np.array(times), starts)


class Part(NamedTuple):
    """A part of a way: time per microbatch, microbatches that begin, and the places of its first and last state."""

    period: Fraction
    begun: int
    first: int
    last: int


class Way(NamedTuple):
    """A way through the graph: its states, microbatches yet to begin there, and when; per event and family what starts then."""

    states: IntArray
    left: IntArray
    time: IntArray
    starts: IntArray

    def parts(self) -> list[Part]:
        """What could be repeated: the parts that end in the state in which they begin, if not too many microbatches begin."""
        found: list[Part] = []
        visits: dict[int, list[int]] = {}
        for last, state in enumerate(self.states.tolist()):
            before = visits.setdefault(state, [])
            for first in reversed(before):
                begun = int(self.left[first] - self.left[last])
                if begun > _LONGEST:
                    break
                found.append(Part(Fraction(int(self.time[last] - self.time[first]), begun), begun, first, last))
            before.append(last)
        return found

    def repeated(self, more: int) -> Way | None:
        """The shortest one with so many microbatches ``more`` that repeats a part of this; ``None`` where none can be."""
        period, begun, a, b = min((part for part in self.parts() if more % part.begun == 0), default=(None, 0, 0, 0))
        if period is None:
            return None
        times, later = more // begun, int(period * begun)
        turns = np.repeat(np.arange(1, times + 1), b - a)
        return Way(
            np.concatenate((self.states[:b], np.tile(self.states[a:b], times), self.states[b:])),
            np.concatenate((self.left[:b] + more, np.tile(self.left[a:b], times) + more - turns * begun, self.left[b:])),
            np.concatenate((self.time[:b], np.tile(self.time[a:b], times) + turns * later, self.time[b:] + times * later)),
            np.concatenate((self.starts[:b], np.tile(self.starts[a:b], (times, 1)), self.starts[b:])),
        )


@dataclass(frozen=True, eq=False)
class Found:
    """No way takes less than ``time``, perhaps because of a ``period`` per microbatch. ``way``: a short one, if any."""

    time: int
    period: Fraction | None
    way: Way | None


def least_time(graph: StateGraph, microbatches: int, *, seconds: float) -> Found | None:
    """The least time in which so many microbatches are done, or a bound on it; ``None``: not in time."""
    until = time.monotonic() + seconds
    times = LeastTimes(graph)
    bound, period = -1, Fraction(0)
    way: Way | None = None
    next_try = 0
    while time.monotonic() < until and len(times.rows) * max(_ROW, graph.open) < _HELD:
        times.add()
        n = len(times.rows) - 1
        if n == microbatches:
            return Found(int(times.rows[n][0]), None, times.way(n))
        if times.longest > _FAR // 2:
            break
        for step in range(1, min(_LONGEST, n - 1) + 1):
            turns = -(-(microbatches - n) // step)
            known = int(times.rows[microbatches - turns * step][0])
            if known + turns * times.rise(step, 1 + graph.open // 256) > bound:
                rise = times.rise(step)
                if known + turns * rise > bound:
                    bound, period, next_try = known + turns * rise, Fraction(rise, step), n
        if n >= next_try and bound >= 0:
            lengths = {part.begun for part in times.way(n).parts() if part.period == period}
            for step in sorted(lengths)[:2] or [period.denominator]:
                few = n - (n - microbatches) % step
                repeated = times.way(few).repeated(microbatches - few)
                if repeated is not None and (way is None or repeated.time[-1] < way.time[-1]):
                    way = repeated
            next_try = n + 1 + n // 4
        if way is not None and way.time[-1] == bound:
            return Found(bound, period, way)
    return None if bound < 0 else Found(bound, period, way)


def _schedule(pipeline: Pipeline, graph: FamilyGraph, way: Way) -> Schedule | None:
    """The schedule of a way; ``None`` where the relaxed graph is not the whole pipeline (:mod:`ppopt.constraints.graphs`)."""
    split = pipeline.costs.split
    if len(graph.of_kind(*Kind)) != pipeline.stages * (3 if split else 2) or (split and not splitting_is_free(pipeline)):
        return None
    rows, starts = [], []
    for _, families in graph.machines[: pipeline.devices]:
        counts = way.starts[:, families]
        event, column = np.nonzero(counts)
        several = counts[event, column]
        event, column = np.repeat(event, several), np.repeat(column, several)
        row = np.empty(len(event), dtype=np.int64)
        for place, family in enumerate(families):
            row[column == place] = operations(pipeline, graph.families[family])
        rows.append(row)
        starts.append(way.time[event])
    return time_order(pipeline, Order(pipeline.index, tuple(rows)), starts)


def throughput(
    pipeline: Pipeline,
    objective: Objective = "makespan",
    *,
    pairs: bool = False,
    most: int = 200_000,
    seconds: float = 20.0,
    exact: bool = False,
    target: int | None = None,
) -> Bound | None:
    """What the state graph proves: exact time per microbatch, and the least cost of beginning and end.

    Valid as :mod:`ppopt.bounds.state_graph` says. For the makespan links are machines of the graph (blocking or not), and once
    more, in case that is too large or not defined, mere delays. Where the graph of the true times is too large, durations and
    lags are rounded down to a grid, or most weight gradients (:func:`_easier`), microbatches (:func:`_thinned`) or devices
    (:func:`_one_device`) left out, and the bound stays valid; not with ``exact``. No more is asked for than ``target``, a value
    known to be possible. With exact times the bound comes with a schedule, which mostly attains it (for the device span: on the
    first device) but for what transfers take from each other and traffic is more than the least, and is timed with that.
    ``None``: it does not apply (:func:`~ppopt.bounds.state_graph.state_graph_of`), or takes more states or seconds than given.
    """
    check_objective(objective)
    begin = time.monotonic()
    graphs = [
        one for links in ([True, False] if pipeline.lines else [True]) for one in relaxed_graphs(pipeline, pairs, links=links)
    ]
    best: Bound | None = None
    for place, graph in enumerate(graphs if objective == "makespan" else graphs[-1:], 1):
        left = (begin + seconds - time.monotonic()) / (len(graphs) - place + 1)
        for bound in _of_graph(pipeline, graph, objective, most, left, exact):
            if best is None or (bound.value, bound.schedule is not None) > (best.value, best.schedule is not None):
                best = bound
            if target is not None and best.value >= target:
                break
    if best is not None and pairs and pairs_save_time(pipeline):
        return replace(best, schedule=None)  # it is one of shorter operations
    return best


class _Relaxed(NamedTuple):
    """What is left of a relaxed graph: ``share`` of its microbatches; ``text``: what was left out, in words, if anything."""

    graph: FamilyGraph
    share: Fraction
    text: str


def _of_graph(
    pipeline: Pipeline, graph: FamilyGraph, objective: Objective, most: int, seconds: float, exact: bool
) -> Iterator[Bound]:
    """The bounds of a relaxed graph, those of small state graphs first.

    State graphs that can only be larger than one too large are not built.
    """
    begun = time.monotonic()
    whole = _Relaxed(graph, Fraction(1), "")
    if exact:
        bound = _of_states(pipeline, whole, objective, most, seconds, Fraction(1))
        if bound is not None:
            yield bound
        return
    grids = _grids(graph)
    easy = bool(_slowest(graph))
    kinds, best = [(grid, easy) for grid in grids], -1
    for thin in _thinned(graph):
        values = []
        for bound in _of_kinds(pipeline, thin, kinds, objective, most, begun + seconds / 3):
            yield bound
            values.append(bound.value)
        if max(values, default=best) <= best:  # too large, or more microbatches cost each other no more
            break
        best = max(values)
    kinds = [(grid, easier) for grid in grids for easier in ((True, False) if easy else (False,))]
    others = _one_device(graph)
    yield from _of_kinds(pipeline, whole, kinds, objective, most, begun + seconds, spare=bool(others))
    for other in [] if kinds else others:
        yield from _of_kinds(pipeline, other, [(grid, False) for grid in grids], objective, most, begun + seconds)


def _of_kinds(
    pipeline: Pipeline,
    of: _Relaxed,
    kinds: list[tuple[Fraction, bool]],
    objective: Objective,
    most: int,
    until: float,
    *,
    spare: bool = False,
) -> Iterator[Bound]:
    """The bounds of the state graphs of a relaxed graph, each on a grid and with most weight gradients left out or not.

    What is too large, or can only be larger than that, is taken out of ``kinds``. With ``spare`` half of the time is left where
    all are.
    """
    relaxed = {True: _easier(of), False: [of]}
    for grid, easy in kinds[:]:
        if (grid, easy) not in kinds:
            continue
        smaller = [kind for kind in kinds if kind[0] > grid or (kind[1] and not easy)]
        share = 0.5 if smaller or spare else 1.0
        best = -1
        for one in relaxed[easy][:]:
            bound = _of_states(pipeline, one, objective, most, share * (until - time.monotonic()), grid)
            if bound is None:
                kinds[:] = smaller
                break
            yield bound
            if bound.value > best:
                best, relaxed[easy] = bound.value, [one]


def _of_states(
    pipeline: Pipeline, relaxed: _Relaxed, objective: Objective, most: int, seconds: float, grid: Fraction
) -> Bound | None:
    """The bound of one state graph."""
    until = time.monotonic() + seconds
    if seconds <= 0:
        return None
    graph = relaxed.graph
    states = state_graph_of(_coarser(graph, grid), span=objective == "span", most=most, seconds=seconds * 0.75)
    if states is None:
        return None
    found = least_time(states, graph.count[0], seconds=until - time.monotonic())
    if found is None:
        return None
    text = f"{states.states} states" + ("" if grid == 1 else f", times rounded down to multiples of {float(grid):g} ticks")
    if pipeline.lines and graph.owners == graph.devices:
        text += ", transfers as mere delays"
    text += relaxed.text
    if found.period is not None:
        text = f"{float(found.period * grid * relaxed.share):g} ticks per microbatch; {text}"
    attained = found.way is not None and grid == 1 and not relaxed.text
    schedule = _schedule(pipeline, graph, found.way) if found.way is not None and attained else None
    return Bound(math.ceil(found.time * grid) + _traffic(graph, objective), "state graph", text, schedule)


def _thinned(graph: FamilyGraph) -> Iterator[_Relaxed]:
    """With two microbatches of as many as memory has room for, then with three and so on, where memory costs throughput.

    A relaxation (:meth:`~ppopt.constraints.FamilyGraph.thinned`), with far fewer states. Where a stage waits for memory
    most of the time, fewer microbatches with as much less memory need as long, and what they cost each other shows with few.
    """
    slowest = max(graph.implied, key=lambda wait: Fraction(graph.round_trip(wait) or 0, wait.shift), default=None)
    if slowest is None or graph.routes > 1:
        return
    if (graph.round_trip(slowest) or 0) * graph.count[0] > max(graph.work) * slowest.shift:
        for kept in range(2, slowest.shift):
            share = Fraction(kept, slowest.shift)
            text = f", {kept} of every {slowest.shift} microbatches alone"
            yield _Relaxed(graph.thinned(kept, slowest.shift), share, text)


def _easier(of: _Relaxed) -> list[_Relaxed]:
    """With the weight gradients of one device alone, of each that memory makes slowest: far fewer states.

    A relaxation (:meth:`~ppopt.constraints.FamilyGraph.without`). Where memory costs throughput, most other devices
    have the time for their weight gradients, and the memory too.
    """
    return [
        _Relaxed(_without_weights(of.graph, device), of.share, f"{of.text}, weight gradients of device {device} alone")
        for device in _slowest(of.graph)
    ]


def _one_device(graph: FamilyGraph) -> list[_Relaxed]:
    """With one device that runs one operation at a time and has a limit of memory, of each that memory makes slowest.

    A relaxation (:meth:`~ppopt.constraints.FamilyGraph.restricted`) for devices with several
    stages: these alone hinder each other there.
    """
    forwards = set(graph.of_kind(Kind.F))
    devices = [device for device in _slowest(graph) if len(forwards.intersection(graph.machines[device].families)) > 1]
    return [
        _Relaxed(_without_weights(graph, device).restricted({device}), Fraction(1), f", device {device} alone")
        for device in devices
    ]


def _without_weights(graph: FamilyGraph, device: int) -> FamilyGraph:
    return graph.without({o for o in graph.of_kind(Kind.W) if graph.owner[o] != device})


def _slowest(graph: FamilyGraph) -> list[int]:
    """Devices that need about the longest for what they hold, if several have weight gradients."""
    if not graph.reservoirs:
        return []
    slowest: dict[int, Fraction] = {}
    for device in sorted({graph.owner[family] for family in graph.of_kind(Kind.W)}):
        limit, held = graph.reservoirs[device]
        time = sum(h.amount * (graph.path(h.first, h.last) or 0) for h in held)
        slowest[device] = Fraction(time, max(1, limit))
    least = max(slowest.values(), default=Fraction(0)) * _ALIKE
    return [device for device, time in slowest.items() if time >= least] if len(slowest) > 1 else []


def _traffic(graph: FamilyGraph, objective: Objective) -> int:
    """What data-parallel traffic adds at least: before the first operation, which waits for none, and after the last one."""
    if objective == "span":
        return min(
            around for around, machine in zip(graph.around, graph.machines[: graph.devices], strict=False) if machine.families
        )
    first = (opening for opening, into in zip(graph.opening, graph.into, strict=True) if not into)
    return min(first) + min(graph.closing[family] for family in graph.of_kind(*Kind))


def _grids(graph: FamilyGraph) -> list[Fraction]:
    """A coarse grid, of which the operations are one to four steps and little is lost by rounding down; the coarsest on which
    far less is lost; and the exact one."""
    grids = [Fraction(1)]
    if max(graph.duration) > 4 * _STEPS:
        some = [time for time in graph.duration if time]
        lags = [p.lag for p in graph.precedences if p.lag]

        def lost(grid: Fraction) -> Fraction:
            return Fraction(sum(time % grid for time in some + lags))

        candidates = {Fraction(time, n) for time in some for n in range(1, _STEPS + 1)}
        fitting = [grid for grid in candidates if grid <= min(some)]
        coarse = min(fitting, key=lambda grid: (sum(time % grid for time in some), -grid))
        finer = {Fraction(time // n) for time in {*some, *lags} for n in range(1, min(time, _FINER) + 1)}
        fine = max((grid for grid in finer if grid < coarse and _LESS * lost(grid) <= lost(coarse)), default=grids[0])
        grids = sorted({*grids, fine, coarse})
    return grids[::-1]


def _coarser(graph: FamilyGraph, grid: Fraction) -> FamilyGraph:
    """With times rounded down; a lag that comes out longer than what it follows, and was not, is cut to that."""
    coarse = graph.rounded_down(grid)
    lags = (
        min(rounded.lag, coarse.duration[rounded.before]) if true.lag <= graph.duration[true.before] else rounded.lag
        for true, rounded in zip(graph.precedences, coarse.precedences, strict=True)
    )
    return replace(coarse, precedences=tuple(p._replace(lag=lag) for p, lag in zip(coarse.precedences, lags, strict=True)))
