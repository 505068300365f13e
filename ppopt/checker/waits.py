"""Who waits for whose result, and whether anybody waits for himself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ppopt.checker.records import Entry, Run, length_of
from ppopt.op import Kind


class Ran(NamedTuple):
    """For every operation of the pipeline: whether it ran at all, its start and its end (``None``: unknown)."""

    seen: bytearray
    start: list[int | None]
    end: list[int | None]


class Edge(NamedTuple):
    """Operations of ``after`` start ``lag`` after those of ``before`` end; kinds and stages, on one route.

    ``held``: of that, how long the transfer between them holds its link (0: there is none, or it holds none)."""

    before: tuple[int, int]
    after: tuple[int, int]
    lag: int
    held: int = 0


def edges(run: Run, route: int) -> Iterator[Edge]:
    """Who waits for whom, within a microbatch."""
    stages = run.pipeline.stages
    for stage in range(stages):
        for backward in (Kind.B, Kind.I):
            yield Edge((Kind.F, stage), (backward, stage), run.facts.over[route][stage])
        for kind in range(Kind.I, run.last_kind):  # the pieces of W, one behind the other
            yield Edge((kind, stage), (kind + 1, stage), 0)
    for stage in range(stages - 1):
        up, down = run.facts.up_held[route][stage], run.facts.down_held[route][stage]
        yield Edge((Kind.F, stage), (Kind.F, stage + 1), up + run.facts.up[route][stage], up)
        for upstream in (Kind.B, Kind.I):
            for backward in (Kind.B, Kind.I):
                yield Edge((upstream, stage + 1), (backward, stage), down + run.facts.down[route][stage], down)


def waits(run: Run) -> Iterator[tuple[int, int, int]]:
    """``(before, after, lag)``, operation by operation."""
    pipeline = run.pipeline
    stages, microbatches = pipeline.stages, pipeline.microbatches
    for route in range(len(pipeline.routes)):
        taken = [m for m, of in enumerate(pipeline.route_of_microbatch) if of == route]
        for (kind, stage), (later_kind, later_stage), lag, _ in edges(run, route):
            first, second = (kind * stages + stage) * microbatches, (later_kind * stages + later_stage) * microbatches
            for m in taken:
                yield first + m, second + m, lag


def circles(run: Run) -> Iterator[list[tuple[int, Entry]]]:
    """Operations that wait for each other in a circle although no time says so, with their devices.

    Each waits for the next one, the last for the first: for its result, or because the device lists it before. Times
    allow that only where all take none, at one time.
    """
    if 0 not in {x for rows in (run.facts.duration, run.facts.overlap) for row in rows for x in row}:
        return
    nodes: list[tuple[int, Entry]] = []
    needs: list[list[int]] = []
    node_of: dict[int, int] = {}
    for device, row in enumerate(run.rows):
        previous = -1
        for entry in row:
            if length_of(run, entry) != 0:
                previous = -1
                continue
            needs.append([previous] if previous >= 0 and _tied(run, nodes[previous][1], entry) else [])
            previous = len(nodes)
            nodes.append((device, entry))
            for key in entry.keys:
                node_of.setdefault(key, previous)
    for before, after, lag in waits(run):
        first, second = node_of.get(before), node_of.get(after)
        if first is not None and second is not None and lag == 0 and _tied(run, nodes[first][1], nodes[second][1]):
            needs[second].append(first)
    for circle in _cycles(needs):
        yield [nodes[node] for node in circle]


def _tied(run: Run, a: Entry, b: Entry) -> bool:
    return abs(a.start - b.start) <= run.tolerance


def _cycles(needs: list[list[int]]) -> Iterator[list[int]]:
    """Cycles of a graph without a common node, at least one where there is any; ``needs[node]`` come before the node."""
    new, open_, done = 0, 1, 2
    state = [new] * len(needs)
    for root in range(len(needs)):
        path: list[tuple[int, Iterator[int]]] = []
        if state[root] == new:
            path.append((root, iter(needs[root])))
            state[root] = open_
        while path:
            node, rest = path[-1]
            following = next(rest, None)
            if following is None:
                state[node] = done
                path.pop()
            elif state[following] == new:
                state[following] = open_
                path.append((following, iter(needs[following])))
            elif state[following] == open_:
                position = next(i for i, (on_path, _) in enumerate(path) if on_path == following)
                circle = [on_path for on_path, _ in path[position:]]
                for on_path in circle:
                    state[on_path] = done
                del path[position:]
                yield circle
