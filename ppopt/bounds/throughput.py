"""How fast microbatches can follow each other where memory is tight, and what the ends cost: exact, from the event graph.

*Bound.* Let no cycle of the graph have ``dt / r`` below ``num / den``. Then the sum of ``num * r - den * dt`` over the ways
from a state to the end, with the number of microbatches on the way fixed modulo K, has a maximum ``g``, found by value
iteration; a schedule is such a way from the empty state, so ``num * M - den * makespan <= g``, constant included. With few
microbatches their number is counted in full instead, and the bound is the optimum.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ppopt.bounds.bound import Bound, Objective, check_objective
from ppopt.bounds.events import Graph, graph_of
from ppopt.bounds.flow import Flow, flows_of
from ppopt.constraints import Family, operations, pairs_save_time, splitting_is_free
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order

LEAST = -(2**60)
_STEPS = 4
"""Most steps of the coarse grid in one operation."""
_FAR = 2**60
_COUNTED = 10**7
"""Edges times microbatches up to which these are counted in full."""
_RESIDUES = 12
"""Most microbatches over which the constant may vary."""


@dataclass(frozen=True, eq=False)
class Speed:
    """No schedule has less than ``period`` per microbatch; ``best``: the largest sums to the end, ``[state, residue]``."""

    period: Fraction
    best: IntArray

    def bound(self, microbatches: int) -> int:
        """The least makespan."""
        sum_ = int(self.best[0, microbatches % self.best.shape[1]])
        return -((sum_ - self.period.numerator * microbatches) // self.period.denominator)


def speed(graph: Graph, period: Fraction, *, step: int = 1, seconds: float) -> Speed | None:
    """The exact least period, begun from one that is too long or right, with the sums by microbatches modulo its ``step``.

    Value iteration; where it finds a cycle that is faster than ``period``, that cycle gives the next one. ``None``: not in time.
    """
    begin = time.monotonic()
    while True:
        found = _iterate(graph, period, step, begin + seconds)
        if found is None:
            return None
        if not isinstance(found, tuple):
            return Speed(period, found)
        elapsed, turns = found
        period = Fraction(elapsed, turns)
        step = turns if turns <= _RESIDUES else period.denominator


def least_times(graph: Graph, microbatches: int, *, seconds: float) -> IntArray | None:
    """The least times to the end, ``[microbatches that have yet to begin, state]``; ``None``: not in time.

    Work that has begun gets less along every edge that begins nothing, so these edges have no cycle: longest ways first.
    """
    until = time.monotonic() + seconds
    begins, stays = (_Edges.of(graph, graph.begun == begun) for begun in (1, 0))
    level = np.zeros(graph.states, dtype=np.int64)
    while True:
        deeper = np.maximum.reduceat(level[stays.target] + 1, stays.at)
        if (deeper == level[stays.heads]).all():
            break
        level[stays.heads] = deeper
        if time.monotonic() > until:
            return None
    layers = [_Edges.of(graph, (graph.begun == 0) & (level[graph.source] == depth)) for depth in range(1, int(level.max()) + 1)]
    least = np.full((microbatches + 1, graph.states), _FAR, dtype=np.int64)
    least[0, graph.end] = 0
    for left, row in enumerate(least):
        if left:
            row[begins.heads] = begins.least(least[left - 1])
        for layer in layers:
            row[layer.heads] = np.minimum(row[layer.heads], layer.least(row))
        if time.monotonic() > until:
            return None
    return least


class _Edges(NamedTuple):
    """Edges by source: those of ``heads[k]`` begin at ``at[k]``."""

    heads: IntArray
    at: IntArray
    target: IntArray
    time: IntArray

    @classmethod
    def of(cls, graph: Graph, chosen: npt.NDArray[np.bool_]) -> _Edges:
        heads, at = np.unique(graph.source[chosen], return_index=True)
        return cls(heads, at, graph.target[chosen], graph.time[chosen])

    def least(self, row: IntArray) -> IntArray:
        """Per head, the least time by one of its edges, if ``row`` has that from their targets on."""
        return np.asarray(np.minimum.reduceat(row[self.target] + self.time, self.at))


def _fastest(graph: Graph, least: IntArray) -> list[IntArray]:
    """One of the schedules that take the least time: for every event, how many operations of each family start."""
    families = graph.rows.shape[1] // 3
    first = np.searchsorted(graph.source, np.arange(graph.states + 1))
    state, left, starts = 0, len(least) - 1, []
    while state != graph.end:
        edges = np.arange(first[state], first[state + 1])
        edges = edges[graph.begun[edges] <= left]
        after = left - graph.begun[edges]
        edge = edges[(least[after, graph.target[edges]] + graph.time[edges]).argmin()]
        target, begun = int(graph.target[edge]), int(graph.begun[edge])
        starts.append(graph.rows[state, :families] + begun - graph.rows[target, :families])
        state, left = target, left - begun
    return starts


def _schedule(pipeline: Pipeline, flow: Flow, starts: Sequence[IntArray]) -> Schedule | None:
    """The schedule in which families start so; ``None`` where the flow is not the whole pipeline (:mod:`ppopt.bounds.flow`)."""
    split = pipeline.costs.split
    computing = [isinstance(kind, Kind) for kind in flow.kind]
    if sum(computing) != pipeline.stages * (3 if split else 2) or (split and not splitting_is_free(pipeline)):
        return None
    columns: list[list[int]] = []
    for label, computes in zip(flow.label, computing, strict=True):
        if not computes:
            columns.append([])
            continue
        name, _, route = label.partition("@")
        columns.append(operations(pipeline, Family(int(name[:-1]), Kind[name[-1]], int(route or 0))).tolist())
    rows: list[list[int]] = [[] for _ in range(pipeline.devices)]
    done = [0] * len(columns)
    for counts in starts:
        for family, count in enumerate(counts.tolist()):
            if computing[family]:
                rows[flow.device[family]] += columns[family][done[family] : done[family] + count]
            done[family] += count
    return time_order(pipeline, Order(pipeline.index, tuple(np.array(row, dtype=np.int64) for row in rows)))


def _iterate(graph: Graph, period: Fraction, step: int, until: float) -> IntArray | tuple[int, int] | None:
    """The largest sums; or the time and the microbatches of a cycle that is faster than ``period``; ``None``: not in time."""
    weight = period.numerator * graph.begun - period.denominator * graph.time
    heads, at = np.unique(graph.source, return_index=True)
    best = np.full((graph.states, step), LEAST, dtype=np.int64)
    best[graph.end, 0] = 0
    column = np.arange(step)[None, :] - graph.begun[:, None]
    column %= step
    rounds = 0
    while True:
        value = best[graph.target[:, None], column]
        value = np.where(value > LEAST, value + weight[:, None], LEAST)
        least = np.maximum.reduceat(value, at, axis=0)
        if (least <= best[heads]).all():
            return best
        best[heads] = np.maximum(best[heads], least)
        rounds += 1
        if rounds % 64 == 0:
            cycle = _faster_cycle(graph, best, weight, column, step)
            if cycle is not None:
                return cycle
            if time.monotonic() > until:
                return None


def _faster_cycle(graph: Graph, best: IntArray, weight: IntArray, column: IntArray, step: int) -> tuple[int, int] | None:
    """A cycle among the edges that give the largest sums, if these have one: then its sum is positive."""
    value = best[graph.target[:, None], column] + weight[:, None]
    size = graph.states * step
    follow = np.full(size, -1, dtype=np.int64)
    edge_of = np.full(size, -1, dtype=np.int64)
    for residue in range(step):
        order = np.lexsort((value[:, residue], graph.source))
        last = np.flatnonzero(np.append(np.diff(graph.source[order]) > 0, True))
        edges = order[last]
        sources = graph.source[edges] * step + residue
        reached = best[graph.target[edges], column[edges, residue]] > LEAST
        follow[sources[reached]] = (graph.target[edges] * step + column[edges, residue])[reached]
        edge_of[sources[reached]] = edges[reached]
    follow[graph.end * step] = -1
    color = np.zeros(size, dtype=np.int64)
    following = follow.tolist()
    for start in range(size):
        path = []
        node = start
        while node >= 0 and color[node] == 0:
            color[node] = start + 1
            path.append(node)
            node = following[node]
        if node >= 0 and color[node] == start + 1 and path and node in path:
            edges = edge_of[np.array(path[path.index(node) :])]
            if int(weight[edges].sum()) > 0:
                return int(graph.time[edges].sum()), int(graph.begun[edges].sum())
    return None


def throughput(
    pipeline: Pipeline,
    objective: Objective = "makespan",
    *,
    pairs: bool = False,
    most: int = 200_000,
    seconds: float = 20.0,
    exact: bool = False,
) -> Bound | None:
    """What the event graph proves: exact time per microbatch, and the least cost of beginning and end.

    Valid as :mod:`ppopt.bounds.events` says. For the makespan links are machines of the graph (blocking or not), and once
    more, in case that is too large or not defined, mere delays. Where the graph of the true times is too large, durations and
    lags are rounded down to a grid, and the bound stays valid; not with ``exact``. Where microbatches are few enough to be
    counted in full, the bound comes with a schedule; it attains the bound (for the device span: on the first device) but for
    what transfers take from each other, and is timed with that. ``None``: it does not apply
    (:func:`~ppopt.bounds.events.graph_of`), or takes more states or seconds than given.
    """
    check_objective(objective)
    begin = time.monotonic()
    flows = [flow for links in ([True, False] if pipeline.lines else [True]) for flow in flows_of(pipeline, pairs, links=links)]
    best: Bound | None = None
    for place, flow in enumerate(flows if objective == "makespan" else flows[-1:], 1):
        left = (begin + seconds - time.monotonic()) / (len(flows) - place + 1)
        bound = _of_flow(pipeline, flow, objective, most, left, [Fraction(1)] if exact else _grids(flow))
        if bound is not None and (best is None or bound.value > best.value):
            best = bound
    if best is not None and pairs and pairs_save_time(pipeline):
        return replace(best, schedule=None)  # it is one of shorter operations
    return best


def _of_flow(
    pipeline: Pipeline, flow: Flow, objective: Objective, most: int, seconds: float, grids: Sequence[Fraction]
) -> Bound | None:
    begin = time.monotonic()
    best: Bound | None = None
    for grid in grids:
        left = begin + seconds - time.monotonic()
        if left <= 0:
            break
        coarse = _coarser(flow, grid)
        graph = graph_of(coarse, span=objective == "span", most=most, seconds=left / 2)
        if graph is None:
            break
        found = _bounded(graph, coarse, left / 2)
        if found is None:
            break
        value, period, starts = found
        value = math.ceil(value * grid)
        if best is None or value > best.value:
            text = f"{graph.states} states" + ("" if grid == 1 else f", times rounded down to multiples of {float(grid):g} ticks")
            if pipeline.lines and len(flow.names) == flow.devices:
                text += ", transfers as mere delays"
            if period is not None:
                text = f"{float(period * grid):g} ticks per microbatch; {text}"
            best = Bound(value, "event graph", text, None if starts is None or grid > 1 else _schedule(pipeline, flow, starts))
    return best


def _bounded(graph: Graph, flow: Flow, seconds: float) -> tuple[int, Fraction | None, list[IntArray] | None] | None:
    """The least time that the graph proves; the period where it is made from one, or how what takes that time starts."""
    microbatches = flow.count[0]
    if (microbatches + 1) * len(graph.source) <= _COUNTED:
        least = least_times(graph, microbatches, seconds=seconds)
        return None if least is None else (int(least[microbatches, 0]), None, _fastest(graph, least))
    alone = Fraction(sum(flow.duration) + sum(edge.lag for edge in flow.edges))
    found = speed(graph, alone, seconds=seconds)
    return None if found is None else (found.bound(microbatches), found.period, None)


def _grids(flow: Flow) -> list[Fraction]:
    """A coarse grid, of which the operations are one to four steps and little is lost by rounding down, and the exact one."""
    grids = [Fraction(1)]
    if max(flow.duration) > 4 * _STEPS:
        some = [time for time in flow.duration if time]
        candidates = {Fraction(time, n) for time in some for n in range(1, _STEPS + 1)}
        fitting = [grid for grid in candidates if grid <= min(some)]
        grids.append(min(fitting, key=lambda grid: (sum(time % grid for time in some), -grid)))
    return grids[::-1]


def _coarser(flow: Flow, grid: Fraction) -> Flow:
    """With times rounded down to steps of ``grid`` ticks: whatever keeps the true times keeps these."""
    return replace(
        flow,
        duration=tuple(int(time // grid) for time in flow.duration),
        edges=tuple(edge._replace(lag=int(edge.lag // grid)) for edge in flow.edges),
    )
