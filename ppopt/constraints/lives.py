"""How long a microbatch's activation lives at least, by the data that its backward waits for."""

from __future__ import annotations

from typing import NamedTuple

from ppopt.constraints.families import FamilyGraph
from ppopt.op import Kind


class Life(NamedTuple):
    """Time from the start of a forward to the end of what gives its activation back; and, of that, from the start of the input
    gradient on."""

    whole: int
    behind: int


def lives(graph: FamilyGraph) -> dict[int, tuple[Life, Life]]:
    """By forward the least lives of what its input gradient gives back, and of what its weight gradient does, in ticks.

    Where a graph has no weight gradients of a stage, both are the same.
    """
    places = {(f.route, f.stage, f.kind): place for place, f in enumerate(graph.families)}
    found = {}
    for forward in graph.of_kind(Kind.F):
        place = graph.families[forward].route, graph.families[forward].stage
        gradient = places.get((*place, Kind.I), places.get((*place, Kind.B), -1))
        ends = gradient, places.get((*place, Kind.W), gradient)
        first, last = (Life(graph.path(forward, end) or 0, graph.path(gradient, end) or 0) for end in ends)
        found[forward] = first, last
    return found
