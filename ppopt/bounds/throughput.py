"""How fast microbatches can follow each other where memory is tight, and what the ends cost: exact, from the state graph.

The states are in :mod:`ppopt.bounds.state_graph`, what a way through them takes in :mod:`ppopt.bounds.least_times`; here is which
graphs are tried, and what is left out of those that are too large.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ppopt.bounds.bound import Bound, check_objective
from ppopt.bounds.copies import beside_copies
from ppopt.bounds.least_times import Way, least_time
from ppopt.bounds.state_graph import state_graph_of
from ppopt.bounds.tuning import BoundsTuning
from ppopt.clock import Clock, Limits
from ppopt.constraints import FamilyGraph, operations, pairs_save_time, relaxed_graphs, splitting_is_free
from ppopt.constraints.families import Precedence
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.schedule import Objective, Order, Schedule
from ppopt.timing import time_order


def _schedule(pipeline: Pipeline, graph: FamilyGraph, way: Way) -> Schedule | None:
    """The schedule of a way; ``None`` where the relaxed graph is not the whole pipeline (:mod:`ppopt.constraints.graphs`)."""
    split = pipeline.costs.split
    families = (2 + pipeline.index.pieces if split else 2) * pipeline.stages
    if len(graph.of_kind(*Kind)) != families or (split and not splitting_is_free(pipeline)):
        return None
    rows, starts = [], []
    for _, own in graph.machines[: pipeline.devices]:
        counts = way.starts[:, own]
        event, column = np.nonzero(counts)
        several = counts[event, column]
        event, column = np.repeat(event, several), np.repeat(column, several)
        row = np.empty(len(event), dtype=np.int64)
        for place, family in enumerate(own):
            row[column == place] = operations(pipeline, graph.families[family])
        rows.append(row)
        starts.append(way.time[event])
    return time_order(pipeline, Order(pipeline.index, tuple(rows)), starts)


@beside_copies
def throughput(
    pipeline: Pipeline,
    objective: Objective = "makespan",
    *,
    most: int,
    limits: Limits,
    tuning: BoundsTuning,
    pairs: bool = False,
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
    ``None``: it does not apply (:func:`~ppopt.bounds.state_graph.state_graph_of`), or takes more time or than ``most`` states.

    Raises:
        ValueError: an unknown objective.
    """
    check_objective(objective)
    clock = limits.clock
    graphs = [
        one for links in ([True, False] if pipeline.lines else [True]) for one in relaxed_graphs(pipeline, pairs, links=links)
    ]
    best: Bound | None = None
    for place, graph in enumerate(graphs if objective == "makespan" else graphs[-1:], 1):
        slice_ = clock.slice(clock.left / (len(graphs) - place + 1))
        for bound in _Relaxations(pipeline, objective, most, tuning, slice_).bounds(graph, exact):
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


@dataclass(frozen=True)
class _Relaxations:
    """The relaxations of one graph that are tried, with at most ``most`` states each, until the clock is over."""

    pipeline: Pipeline
    objective: Objective
    most: int
    tuning: BoundsTuning
    clock: Clock

    def bounds(self, graph: FamilyGraph, exact: bool) -> Iterator[Bound]:
        """Those with most weight gradients left out first, on a coarse grid first; graphs that can only be larger than one too
        large are not built. Measured on 17 pipelines, 17 s: three bounds are 0.2 to 6 % larger than where all of a grid come
        first, and none smaller.

        ``exact``: that of the whole graph alone.
        """
        whole = _Relaxed(graph, Fraction(1), "")
        if exact:
            bound = self._of_states(whole, Fraction(1), self.clock)
            if bound is not None:
                yield bound
            return
        grids = _grids(graph, self.tuning)
        easy = (True, False) if _slowest(graph, self.tuning) else (False,)
        kinds, others = [(grid, easier) for easier in easy for grid in grids], _one_device(graph, self.tuning)
        of_whole = self._of_kinds(whole, kinds, self.clock, spare=True)
        first = next(of_whole, None)
        if first is not None:
            yield first
        else:  # the others can only be larger
            half = self.clock.slice(self.clock.left / 2)
            for other in others:
                yield from self._of_kinds(other, [(grid, False) for grid in grids], half)
        clock, best = self.clock.slice(self.clock.left * (1 if first is None else 1 / 2)), -1
        kinds_of_fewer = [(grid, easy[0]) for grid in grids]
        for thin in _thinned(graph):
            values = []
            for bound in self._of_kinds(thin, kinds_of_fewer, clock):
                yield bound
                values.append(bound.value)
            if max(values, default=best) <= best:  # too large, or more microbatches cost each other no more
                break
            best = max(values)
        yield from of_whole

    def _of_kinds(
        self, of: _Relaxed, kinds: list[tuple[Fraction, bool]], clock: Clock, *, spare: bool = False
    ) -> Iterator[Bound]:
        """The bounds of the state graphs of a relaxed graph, each on a grid and with most weight gradients left out or not.

        What is too large, or can only be larger than that, is taken out of ``kinds``. With ``spare`` half of the time is left
        as long as all are. Else a quarter of it is left for the others.
        """
        relaxed = {True: _easier(of, self.tuning), False: [of]}
        for place, (grid, easy) in enumerate(all_kinds := kinds[:], 1):
            if (grid, easy) not in kinds:
                continue
            smaller = [kind for kind in kinds if kind[0] > grid or (kind[1] and not easy)]
            share = 0.5 if spare else 3 / 4 if any(kind in kinds for kind in all_kinds[place:]) else 1.0
            best = -1
            for one in relaxed[easy][:]:
                bound = self._of_states(one, grid, clock.slice(share * clock.left))
                if bound is None:
                    kinds[:] = smaller
                    break
                yield bound
                spare = False
                if bound.value > best:
                    best, relaxed[easy] = bound.value, [one]

    def _of_states(self, relaxed: _Relaxed, grid: Fraction, clock: Clock) -> Bound | None:
        """The bound of one state graph."""
        if clock.over:
            return None
        pipeline, graph, objective = self.pipeline, relaxed.graph, self.objective
        coarse = _coarser(_behind_margins(graph, objective), grid)
        states = state_graph_of(coarse, span=objective == "span", most=self.most, clock=clock, tuning=self.tuning)
        if states is None:
            return None
        found = least_time(states, graph.count[0], clock, self.tuning)
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
        whole = grid == 1 and not relaxed.text and not pipeline.lines
        return Bound(math.ceil(found.time * grid) + _margins(graph, objective), "state graph", text, schedule, exact=whole)


def _thinned(graph: FamilyGraph) -> Iterator[_Relaxed]:
    """With two microbatches of as many as memory has room for, then with three and so on, where memory costs throughput.

    A relaxation (:meth:`~ppopt.constraints.FamilyGraph.thinned`), with far fewer states. Where a stage waits for memory
    most of the time, fewer microbatches with as much less memory need as long, and what they cost each other shows with few.
    """
    slowest = slowest_wait(graph)
    if slowest is None or graph.routes > 1:
        return
    for kept in range(2, slowest.shift):
        share = Fraction(kept, slowest.shift)
        text = f", {kept} of every {slowest.shift} microbatches alone"
        yield _Relaxed(graph.thinned(kept, slowest.shift), share, text)


def slowest_wait(graph: FamilyGraph) -> Precedence | None:
    """The wait for memory that takes longest per microbatch; ``None`` where the busiest device takes as long: memory of one stage
    costs no throughput."""
    slowest = max(graph.implied, key=lambda wait: Fraction(graph.round_trip(wait) or 0, wait.shift), default=None)
    if slowest is None or (graph.round_trip(slowest) or 0) * graph.count[0] <= max(graph.work) * slowest.shift:
        return None
    return slowest


def _easier(of: _Relaxed, tuning: BoundsTuning) -> list[_Relaxed]:
    """With the weight gradients of one device alone, of each that memory makes slowest: far fewer states.

    A relaxation (:meth:`~ppopt.constraints.FamilyGraph.without`). Where memory costs throughput, most other devices
    have the time for their weight gradients, and the memory too.
    """
    return [
        _Relaxed(_without_weights(of.graph, device), of.share, f"{of.text}, weight gradients of device {device} alone")
        for device in _slowest(of.graph, tuning)
    ]


def _one_device(graph: FamilyGraph, tuning: BoundsTuning) -> list[_Relaxed]:
    """With one device that runs one operation at a time and has a limit of memory, of each that memory makes slowest.

    A relaxation (:meth:`~ppopt.constraints.FamilyGraph.restricted`) for devices with several
    stages: these alone hinder each other there.
    """
    forwards = set(graph.of_kind(Kind.F))
    devices = [device for device in _slowest(graph, tuning) if len(forwards.intersection(graph.machines[device].families)) > 1]
    return [
        _Relaxed(_without_weights(graph, device).restricted({device}), Fraction(1), f", device {device} alone")
        for device in devices
    ]


def _without_weights(graph: FamilyGraph, device: int) -> FamilyGraph:
    return graph.without({o for o in graph.of_kind(Kind.W) if graph.owner[o] != device})


def _slowest(graph: FamilyGraph, tuning: BoundsTuning) -> list[int]:
    """Devices that need about the longest for what they hold, if several have weight gradients."""
    if not graph.reservoirs:
        return []
    slowest: dict[int, Fraction] = {}
    for device in sorted({graph.owner[family] for family in graph.of_kind(Kind.W)}):
        limit, held = graph.reservoirs[device]
        time = sum(h.amount * (graph.path(h.first, h.last) or 0) for h in held)
        slowest[device] = Fraction(time, max(1, limit))
    least = max(slowest.values(), default=Fraction(0)) * tuning.as_slow
    return [device for device, time in slowest.items() if time >= least] if len(slowest) > 1 else []


def _margins(graph: FamilyGraph, objective: Objective) -> int:
    """What devices do before their first operation, if it waits for none, and after their last one adds this at least."""
    if objective == "span":
        return min(
            around for around, machine in zip(graph.around, graph.machines[: graph.devices], strict=False) if machine.families
        )
    first = (opening for opening, into in zip(graph.lead, graph.into, strict=True) if not into)
    return min(first) + _least_tail(graph, objective)


def _least_tail(graph: FamilyGraph, objective: Objective) -> int:
    """What comes behind the last operation at least; for the span, of the first stage's device."""
    first = next(family for family, into in enumerate(graph.into) if not into)
    own = graph.machines[graph.owner[first]].families if objective == "span" else graph.of_kind(*Kind)
    return min(graph.tail[family] for family in own)


def _behind_margins(graph: FamilyGraph, objective: Objective) -> FamilyGraph:
    """With what comes behind operations beside :func:`_margins` alone."""
    least = _least_tail(graph, objective)
    return replace(graph, tail=tuple(max(0, tail - least) for tail in graph.tail))


def _grids(graph: FamilyGraph, tuning: BoundsTuning) -> list[Fraction]:
    """A coarse grid, where operations are one to four steps long and little is lost by rounding down; the coarsest on which
    far less is lost; and the exact one."""
    grids = [Fraction(1)]
    if max(graph.duration) > 4 * tuning.coarse_steps:
        some = [time for time in graph.duration if time]
        lags = [p.lag for p in graph.precedences if p.lag]

        def lost(grid: Fraction) -> Fraction:
            return Fraction(sum(time % grid for time in some + lags))

        candidates = {Fraction(time, n) for time in some for n in range(1, tuning.coarse_steps + 1)}
        fitting = [grid for grid in candidates if grid <= min(some)]
        coarse = min(fitting, key=lambda grid: (sum(time % grid for time in some), -grid))
        finer = {Fraction(time // n) for time in {*some, *lags} for n in range(1, min(time, tuning.finest_steps) + 1)}
        fine = max((grid for grid in finer if grid < coarse and tuning.less_lost * lost(grid) <= lost(coarse)), default=grids[0])
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
