"""All bounds in turn, the cheap ones first."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from ppopt.bounds.bound import Bound, Objective
from ppopt.bounds.closed_form import machine, memory, work
from ppopt.bounds.late import latest_first_starts
from ppopt.bounds.windows import of_graph, window
from ppopt.constraints import FamilyGraph, relaxed_graphs
from ppopt.op import Kind
from ppopt.pipeline import Pipeline

FINE = 1000
"""With operations of more ticks than this the windows are first tried on a coarser grain."""
COARSE = 200
"""Units of that grain in the longest operation."""


def best(
    pipeline: Pipeline,
    objective: Objective = "makespan",
    *,
    target: int | None = None,
    pairs: bool = False,
    time_limit: float = 10.0,
    workers: int = 1,
    seed: int = 0,
    deterministic: bool = False,
    shortest: int = 0,
    tried: dict[tuple[int, int, int], tuple[float, int | None]] | None = None,
) -> Iterator[Bound]:
    """Better and better bounds: work, one machine, memory, then windows of growing length.

    Ends when a bound reaches ``target`` (a value known to be possible), after the longest window, or at the
    ``time_limit`` (seconds; of deterministic time with ``deterministic``); every search gets half of what is left. The
    first three bounds take milliseconds. Of a window first all that it says is asked; then whether that is a little more than
    what is known, then whether it is much more: such questions are often decided where the first one is not.
    ``shortest``: windows of less than so many eighths of the filling time are left out. ``tried``: of windows (of this
    pipeline and objective) that were asked before, the seconds that they had, without end for those that have said all they can,
    and the target; they are left out too unless they get more now, or less is asked. It is brought up to date.
    """
    known = -1
    tried = {} if tried is None else tried
    for of in (work, machine, memory):
        bound = of(pipeline, objective, pairs=pairs)
        if bound is not None and bound.value > known:
            known = bound.value
            yield bound
        if target is not None and known >= target:
            return
    if known < 0 or time_limit <= 0:
        return
    graph = relaxed_graphs(pipeline, pairs, links=objective == "makespan")[0]
    makespan = max(bound.value for of in (machine, memory) if (bound := of(pipeline, pairs=pairs)) is not None)
    makespan = of_graph(makespan, graph, pipeline, objective, pairs)
    begin, spent = time.monotonic(), 0.0
    for first, last, grain in _windows(graph, objective, shortest):
        first = min(first, max(makespan // 2, makespan - last))
        lengths = first, min(last, makespan - first), grain
        left = time_limit - (spent if deterministic else time.monotonic() - begin)
        seconds, before = tried.get(lengths, (0.0, None))
        if seconds >= left / 2 and (seconds == math.inf or target is None or (before is not None and before <= target)):
            continue
        tried[lengths] = left / 2, target
        asked, rise, climbing = target, 0, False
        while True:
            left = time_limit - (spent if deterministic else time.monotonic() - begin)
            if left < time_limit / 12:
                return
            spent += left / 2
            bound = window(
                pipeline,
                *lengths[:2],
                objective,
                makespan=makespan,
                known=known,
                target=asked,
                grain=grain,
                pairs=pairs,
                time_limit=left / 2,
                workers=workers,
                seed=seed,
                deterministic=deterministic,
            )
            better = bound is not None and bound.value > known
            if bound is not None and better:
                known = bound.value
                makespan = max(makespan, known)
                yield bound
            if target is not None and known >= target:
                return
            if bound is not None and bound.exact:
                tried[lengths] = math.inf, target
                break
            if bound is None or target is None or (climbing and not better):
                break
            rise = 2 * rise if climbing else max(1, (target - known) // 8)
            asked, climbing = min(target, known + rise), True


def _windows(graph: FamilyGraph, objective: Objective, shortest: int) -> Iterator[tuple[int, int, int]]:
    """Lengths of the start and of the end window, and grain: the time in which a pipeline fills, half of it, then up to twice.

    That time is the way of one microbatch forward and back, or about three rounds of the devices where a microbatch visits them
    twice each way, four where four times. Much longer windows prove little more and take far longer; slightly longer ones may
    prove much more. Half of it seldom proves anything, but does so where the whole takes too long.
    For the device span, the time by which the last device has begun comes on top.
    """
    lags = sum(precedence.lag for precedence in graph.precedences)
    rounds = 4 * graph.devices + len(graph.of_kind(Kind.F))
    rounds = rounds * (sum(graph.duration) + lags) // (2 * len(graph.of_kind(*Kind)))
    way = max(graph.path(0, last) or 0 for last in range(len(graph.families)))
    fill = max(1, min(rounds, way))
    late = [0, 0]
    if objective == "span":
        late = [max(time or 0 for time in latest_first_starts(of)) for of in (graph, graph.reversed())]
    longest = max(graph.duration)
    grains = [-(-longest // COARSE), 1] if longest > FINE else [1]
    for grain in grains:
        for eighths in (eighths for eighths in (8, 10, 4, 12, 14, 16) if eighths >= shortest):
            first, last = (max(grain, time + fill * eighths // 8) for time in late)
            yield first, last, grain
