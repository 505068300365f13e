"""What memory limits imply where microbatches differ and run in a given order: waits of each for some earlier one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from graphlib import TopologicalSorter
from typing import NamedTuple, TypeVar

from ppopt.constraints.families import FamilyGraph, Precedence, Reservoir
from ppopt.op import Kind

Item = TypeVar("Item")


class _Turn(NamedTuple):
    """What one microbatch runs of a stage, by number, on the device that holds what its forward leaves behind."""

    forward: int
    back: int
    """``B`` or ``I``."""
    weights: tuple[int, ...]
    """``W``, or its pieces; none where that is part of ``back``."""
    held: int
    """What it holds there from the forward on until ``back`` ends, of this stage and of the device's earlier ones."""
    kept: int
    """What of that its forward on this stage claims and nothing but ``weights`` gives back."""


@lru_cache(maxsize=4)  # every bound within memory asks for it
def waiting_in_turn(graph: FamilyGraph) -> FamilyGraph:
    """The graph where each microbatch has a route of its own, with what the limits of memory say about their order.

    Microbatches are numbered as they come; ``A(m)`` is what m holds from the start of a forward ``F(m)`` on, of its stage and the
    device's earlier ones, and L the limit.

    - *Backwards.* Let j be the last one for which ``A(j) + ... + A(n)`` is more than L. Then ``F(n)`` waits for the end of
      ``I(j)``: else no backward from j on has ended, since they come in order, and all of these are held when F(n) starts.
      Let also what ``F(j)`` claimed and only ``W(j)`` gives back be more than L leaves beside ``A(j + 1) + ... + A(n)``. Then
      F(n) waits longer, for as long as W(j) takes or ``I(j + 1)``, whichever is shorter: one of the two has ended as well, on
      the same device, and both come behind I(j).
    - *Forwards.* ``F(n)`` of an earlier stage waits for ``F'(m)`` of a later one where ``A(m) + ... + A(n)`` and what m claims
      from behind the earlier stage up to the later one are more than L: else they are all held when F'(m) starts, since no
      backward of m, or of a microbatch behind it, has run on the device before that.

    What :func:`~ppopt.constraints.implied.implied_by_memory` says of alike microbatches is said here for each of its own. Orders
    are read from the precedences; where there are none, as where the order is open, nothing is said. The same schedules obey both
    graphs, whose families are numbered in another order.
    """
    waits = waits_in_turn(graph)
    if not waits:
        return graph
    into: dict[int, set[int]] = {family: set() for family in range(len(graph.families))}
    for wait in (*graph.precedences, *waits):
        into[wait.after].add(wait.before)
    return replace(graph, precedences=(*graph.precedences, *waits)).kept_alone(list(TopologicalSorter(into).static_order()), {})


def waits_in_turn(graph: FamilyGraph) -> tuple[Precedence, ...]:
    """The waits of :func:`waiting_in_turn` alone; none where microbatches are alike."""
    if not graph.one_by_one:
        return ()
    ordered = {(wait.before, wait.after) for wait in graph.precedences if not wait.shift}
    waits: list[Precedence] = []
    for place, reservoir in enumerate(graph.reservoirs):
        stages = _turns(graph, reservoir, graph.machines[place].families)
        for number, turns in enumerate(stages):
            waits += _for_backwards(graph, turns, ordered, reservoir.limit)
            for later in stages[number + 1 :]:
                waits += _for_forwards(graph, turns, later, ordered, reservoir.limit)
    return tuple(waits)


def _turns(graph: FamilyGraph, reservoir: Reservoir, families: Sequence[int]) -> list[list[_Turn]]:
    """Of each stage of a device, in the order of a route, what its microbatches run, in the order of the forwards' numbers."""
    amounts = {(first, last): amount for first, last, amount in reservoir.held}  # merged
    claimed: dict[int, int] = {}
    for (first, _), amount in amounts.items():
        claimed[first] = claimed.get(first, 0) + amount
    of: dict[tuple[int, int], dict[Kind, list[int]]] = {}  # by stage and route
    for number in families:
        family = graph.families[number]
        if isinstance(family.kind, Kind):
            of.setdefault((family.stage, family.route), {}).setdefault(family.kind, []).append(number)
    found: dict[int, list[_Turn]] = {}
    held: dict[int, int] = {}
    for (stage, route), runs in sorted(of.items()):
        backs = runs.get(Kind.B) or runs.get(Kind.I)
        if Kind.F not in runs or backs is None:  # run on several devices, which tell of nothing alone
            continue
        forward, weights = runs[Kind.F][0], tuple(runs.get(Kind.W, ()))
        held[route] = held.get(route, 0) + claimed.get(forward, 0)
        kept = amounts.get((forward, weights[-1]), 0) if weights else 0
        found.setdefault(stage, []).append(_Turn(forward, backs[0], weights, held[route], kept))
    return [sorted(turns) for turns in found.values()]


def _in_a_row(items: Sequence[Item], follows: Callable[[Item, Item], bool]) -> Iterator[list[Item]]:
    """The items in pieces, as long as each follows the one before."""
    row: list[Item] = []
    for item in items:
        if row and not follows(row[-1], item):
            yield row
            row = []
        row.append(item)
    yield row


def _for_backwards(graph: FamilyGraph, turns: Sequence[_Turn], ordered: set[tuple[int, int]], limit: int) -> Iterator[Precedence]:
    """The waits of forwards of a stage for its backwards."""

    def follows(one: _Turn, other: _Turn) -> bool:
        return (one.forward, other.forward) in ordered and (one.back, other.back) in ordered

    for row in _in_a_row(turns, follows):
        first = held = 0  # of those behind the last one that has to be over
        for place, turn in enumerate(row):
            held += turn.held
            while held > limit and first < place:
                held -= row[first].held
                first += 1
            if not first:
                continue
            last, lag = row[first - 1], 0
            if last.kept + held > limit:
                lag = sum(graph.duration[weight] for weight in last.weights)
                lag = min(lag, graph.duration[row[first].back]) if first < place else lag
            yield Precedence(last.back, turn.forward, lag=lag)


def _for_forwards(
    graph: FamilyGraph, early: Sequence[_Turn], late: Sequence[_Turn], ordered: set[tuple[int, int]], limit: int
) -> Iterator[Precedence]:
    """The waits of forwards of an earlier stage for those of a later one."""

    def follows(one: tuple[_Turn, _Turn], other: tuple[_Turn, _Turn]) -> bool:
        return all((a.forward, b.forward) in ordered for a, b in zip(one, other, strict=True))

    later = {graph.families[turn.forward].route: turn for turn in late}
    routes = [(turn, graph.families[turn.forward].route) for turn in early]
    for row in _in_a_row([(turn, later[route]) for turn, route in routes if route in later], follows):
        end = held = 0  # of those up to the first one that has to wait
        for place, (turn, other) in enumerate(row):
            room = limit - (other.held - turn.held)
            while end < len(row) and (held <= room or end <= place):
                held += row[end][0].held
                end += 1
            while end - 1 > place and held - row[end - 1][0].held > room:
                end -= 1
                held -= row[end][0].held
            if held > room and end - 1 > place:
                yield Precedence(other.forward, row[end - 1][0].forward)
            held -= turn.held
