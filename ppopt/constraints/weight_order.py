"""Weight gradients of equal cost run in the order of their input gradients: a cut between the stages of a device.

*Exchange.* Let a device hold several stages whose weight gradients take equally long and give back equally much, and let nothing
wait for these. Take any schedule in order (:func:`ppopt.constraints.cuts.in_order`), and of these weight gradients the k-th to
start. By then k of them have started, each behind its own input gradient, so k of the input gradients have ended. So the
k-th to start may be that of the k-th input gradient to end. The device is as busy as it was; at any time as many weight gradients
have ended, so as much is held; nobody else notices; and a stage's weight gradients stay in order. Hence each schedule has one
with the same times in which weight gradients of equal cost run in the order in which their input gradients end.

*Cut.* Which of two input gradients is first is often known, whatever the schedule: that of the later stage by the data, and that
of an earlier microbatch by memory, where the limit lets it be no more than some number of microbatches behind. Where ``I_a(n)``
waits for ``I_b(n - k)``, ``W_a(n)`` may wait for ``W_b(n - k)``. What memory implies holds for every schedule in order, so also
for the one that was exchanged.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

from ppopt.constraints.families import FamilyGraph, Precedence
from ppopt.op import Kind


class Backward(NamedTuple):
    """The input gradient and the weight gradient of a stage: families by number."""

    input: int
    weight: int


def equal_weights(graph: FamilyGraph) -> list[list[Backward]]:
    """The stages of each device whose weight gradients can stand for each other (see above), two or more each time.

    They need the same machines for the same time, give back the same, and have the same before and after the device's
    operations. Each waits for its input gradient alone, on the same device; nothing waits for it.
    """
    waited = {precedence.before for precedence in graph.precedences}
    into: dict[int, list[Precedence]] = {}
    for precedence in graph.precedences:
        into.setdefault(precedence.after, []).append(precedence)
    claiming = {held.first for held in graph.held}
    alike: dict[tuple[object, ...], list[Backward]] = {}
    for weight in graph.of_kind(Kind.W):
        before = into.get(weight, [])
        if weight in waited or weight in claiming or not graph.duration[weight] or len(before) != 1:
            continue
        ((input_, _, shift, lag),) = before
        if shift or lag or graph.owner[input_] != graph.owner[weight]:
            continue
        back = [(place, h.amount) for place, of in enumerate(graph.reservoirs) for h in of.held if h.last == weight]
        sums = tuple((place, sum(amount for at, amount in back if at == place)) for place in sorted({at for at, _ in back}))
        cost = (graph.duration[weight], sums, graph.lead[weight], graph.tail[weight])
        alike.setdefault((graph.machines_of[weight], *cost), []).append(Backward(input_, weight))
    return [stages for stages in alike.values() if len(stages) > 1]


def weights_in_turn(graph: FamilyGraph) -> tuple[Precedence, ...]:
    """What may be waited for between the weight gradients of different stages of a device, without losing any schedule's times.

    Microbatches run in order.
    """
    found = []
    for stages in equal_weights(graph):
        inputs = [stage.input for stage in stages]
        least = {input_: _least_shifts(graph, input_, inputs) for input_ in inputs}
        for first, second in permutations(stages, 2):
            shift = least[first.input].get(second.input)
            if shift is not None and (not graph.count or shift < graph.count[second.weight]):
                found.append(Precedence(first.weight, second.weight, shift))
    return tuple(found)


def _least_shifts(graph: FamilyGraph, first: int, wanted: Sequence[int]) -> dict[int, int]:
    """By family of those ``wanted`` the least k for which its n-th operation waits for number n - k of ``first``."""
    after: dict[int, list[tuple[int, int]]] = {}
    for precedence in (*graph.precedences, *graph.implied):
        if precedence.lag >= 0:
            after.setdefault(precedence.before, []).append((precedence.after, precedence.shift))
    least: dict[int, int] = {}
    reached = [(0, first)]
    while reached:
        shift, family = heapq.heappop(reached)
        if family in least:
            continue
        least[family] = shift
        for other, more in after.get(family, []):
            if other not in least and more >= 0:
                heapq.heappush(reached, (shift + more, other))
    return {family: least[family] for family in wanted if family in least}
