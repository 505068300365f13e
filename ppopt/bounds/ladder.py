"""All bounds in turn, the cheap ones first."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ppopt.bounds.bound import Bound, Objective
from ppopt.bounds.closed_form import machine, memory, work
from ppopt.bounds.flow import Flow, flow_of
from ppopt.bounds.windows import window
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
) -> Iterator[Bound]:
    """Better and better bounds: work, one machine, memory, then windows of growing length (makespan only).

    Ends when a bound reaches ``target`` (a value known to be possible), when longer windows bring nothing, or at the
    ``time_limit`` (seconds; of deterministic time with ``deterministic``); every window gets a third of what is left. The
    first three take milliseconds.
    """
    floor = -1
    for of in (work, machine, memory):
        bound = of(pipeline, objective, pairs=pairs)
        if bound is not None and bound.value > floor:
            floor = bound.value
            yield bound
        if target is not None and floor >= target:
            return
    if objective != "makespan" or floor < 0:
        return
    begin, spent = time.monotonic(), 0.0
    for length, grain in _windows(flow_of(pipeline)):
        left = time_limit - (spent if deterministic else time.monotonic() - begin)
        if left < time_limit / 20:
            return
        spent += left / 3
        bound = window(
            pipeline,
            min(length, floor // 2),
            floor=floor,
            grain=grain,
            target=target,
            pairs=pairs,
            time_limit=left / 3,
            workers=workers,
            seed=seed,
            deterministic=deterministic,
        )
        if bound is None:
            return
        if bound.value > floor:
            floor = bound.value
            yield bound
        if target is not None and floor >= target:
            return


def _windows(flow: Flow) -> Iterator[tuple[int, int]]:
    """Lengths and grains to try: half of the time in which a pipeline fills, then once to twice that.

    That is the way of one microbatch forward and back, or about three rounds of the devices where a microbatch visits
    them more often. Much longer windows prove little more and take far longer; slightly longer ones may prove much more.
    """
    lags = sum(edge.lag for edge in flow.edges)
    rounds = 3 * flow.devices * (sum(flow.duration) + lags) // len(flow.label)
    way = max(flow.chain(0, last) for last in range(len(flow.label)))
    fill = max(1, min(rounds, way))
    longest = max(flow.duration)
    grains = [-(-longest // COARSE), 1] if longest > FINE else [1]
    for grain in grains:
        for eighths in (4, 8, 9, 10, 11, 12, 14, 16):
            yield max(grain, fill * eighths // 8), grain
