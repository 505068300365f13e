"""How fast microbatches can follow each other where memory is tight, and what the ends cost: exact, from the event graph.

*Bound.* Let no cycle of the graph have ``dt / r`` below ``num / den``. Then the sum of ``num * r - den * dt`` over the ways
from a state to the end, with the number of microbatches on the way fixed modulo K, has a maximum ``g``, found by value
iteration; a schedule is such a way from the empty state, so ``num * M - den * makespan <= g``, constant included. With few
microbatches their number is counted in full instead, and the bound is the optimum.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ppopt.bounds.bound import Bound
from ppopt.bounds.events import Graph, graph_of
from ppopt.bounds.flow import Flow, flows_of
from ppopt.pipeline import IntArray, Pipeline

LEAST = -(2**60)
_STEPS = 4
"""Most steps of the coarse grid in one operation."""
_COUNTED = 5 * 10**6
"""Edges times microbatches squared up to which these are counted in full."""
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


def least_time(graph: Graph, microbatches: int, *, seconds: float) -> int | None:
    """The least makespan, their number counted in full; ``None``: not in time."""
    found = _iterate(graph, Fraction(0), microbatches + 1, time.monotonic() + seconds, wrap=False)
    return -int(found[0, microbatches]) if isinstance(found, np.ndarray) else None


def _iterate(graph: Graph, period: Fraction, step: int, until: float, wrap: bool = True) -> IntArray | tuple[int, int] | None:
    """The largest sums; or the time and the microbatches of a cycle that is faster than ``period``; ``None``: not in time."""
    weight = period.numerator * graph.begun - period.denominator * graph.time
    heads, at = np.unique(graph.source, return_index=True)
    best = np.full((graph.states, step), LEAST, dtype=np.int64)
    best[graph.end, 0] = 0
    column = np.arange(step)[None, :] - graph.begun[:, None]
    possible = wrap | (column >= 0)
    column %= step
    rounds = 0
    while True:
        value = best[graph.target[:, None], column]
        value = np.where(possible & (value > LEAST), value + weight[:, None], LEAST)
        least = np.maximum.reduceat(value, at, axis=0)
        if (least <= best[heads]).all():
            return best
        best[heads] = np.maximum(best[heads], least)
        rounds += 1
        if rounds % 64 == 0:
            cycle = _faster_cycle(graph, best, weight, column, step) if wrap else None
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


def throughput(pipeline: Pipeline, *, pairs: bool = False, most: int = 200_000, seconds: float = 20.0) -> Bound | None:
    """The makespan that the event graph proves: exact time per microbatch, and the least cost of beginning and end.

    Valid as :mod:`ppopt.bounds.events` says. Links are machines of the graph, and once more, in case that is too large or not
    defined, mere delays. Where the graph of the true times is too large, durations and lags are rounded
    down to a grid, and the bound stays valid. ``None``: it does not apply (:func:`~ppopt.bounds.events.graph_of`), or takes
    more states or seconds than given.
    """
    begin = time.monotonic()
    flows = [(flow, "") for flow in flows_of(pipeline, pairs)]
    if pipeline.lines:
        flows += [(flow, ", transfers as delays") for flow in flows_of(pipeline, pairs, links=False)]
    best: Bound | None = None
    for place, (flow, note) in enumerate(flows):
        left = (begin + seconds - time.monotonic()) / (len(flows) - place)
        bound = _of_flow(flow, note, most, left)
        if bound is not None and (best is None or bound.value > best.value):
            best = bound
    return best


def _of_flow(flow: Flow, note: str, most: int, seconds: float) -> Bound | None:
    begin = time.monotonic()
    best: Bound | None = None
    for grid in _grids(flow):
        left = begin + seconds - time.monotonic()
        if left <= 0:
            break
        coarse = _coarser(flow, grid)
        graph = graph_of(coarse, most=most, seconds=left / 2)
        if graph is None:
            break
        found = _bounded(graph, flow.count[0], sum(coarse.duration) + sum(edge.lag for edge in coarse.edges), left / 2)
        if found is None:
            break
        value = math.ceil(found[0] * grid)
        if best is None or value > best.value:
            text = f"{graph.states} states" + ("" if grid == 1 else f", times rounded down to multiples of {float(grid):g} ticks")
            text += note
            best = Bound(
                value, "event graph", text if found[1] is None else f"{float(found[1] * grid):g} ticks per microbatch; {text}"
            )
    return best


def _bounded(graph: Graph, microbatches: int, alone: int, seconds: float) -> tuple[int, Fraction | None] | None:
    """The least makespan that the graph proves, and the period where it is made from one; ``alone``: time of one microbatch."""
    if (microbatches + 1) ** 2 * len(graph.source) <= _COUNTED:
        value = least_time(graph, microbatches, seconds=seconds)
        return None if value is None else (value, None)
    found = speed(graph, Fraction(alone), seconds=seconds)
    return None if found is None else (found.bound(microbatches), found.period)


def _grids(flow: Flow) -> list[Fraction]:
    """A coarse grid, of which the operations are one to four steps and little is lost by rounding down, and the exact one."""
    grids = [Fraction(1)]
    if max(flow.duration) > 4 * _STEPS:
        shortest = min(flow.duration)
        candidates = {Fraction(time, n) for time in flow.duration for n in range(1, _STEPS + 1)}
        fitting = [grid for grid in candidates if grid <= shortest]
        if fitting:
            grids.append(min(fitting, key=lambda grid: (sum(time % grid for time in flow.duration), -grid)))
    return grids[::-1]


def _coarser(flow: Flow, grid: Fraction) -> Flow:
    """With times rounded down to steps of ``grid`` ticks: whatever keeps the true times keeps these."""
    return replace(
        flow,
        duration=tuple(int(time // grid) for time in flow.duration),
        edges=tuple(edge._replace(lag=int(edge.lag // grid)) for edge in flow.edges),
    )
