"""What memory limits imply: waits between the families of one device, whatever the number of microbatches is."""

from __future__ import annotations

from dataclasses import replace

from ppopt.constraints.families import FamilyGraph, Precedence, Reservoir
from ppopt.op import Kind


def implied_by_memory(graph: FamilyGraph) -> tuple[Precedence, ...]:
    """What the limits of memory say about microbatches that run in order, as precedences between families.

    On one device and route let ``A`` be what a microbatch holds when a forward ``F`` starts, of its stage and the device's
    earlier ones, and ``L`` the limit.

    - *Releases.* Let R be a family of the same stage, and let ``r`` be what F and the device's earlier forwards claimed and is
      surely held until R ends: what is released by R, or by what waits for R. Then ``F(n + c)`` waits for ``R(n)`` with
      ``c = (L - A) // r + 1``: else the c microbatches from n on hold ``r`` each, and n + c holds ``A``.
    - *Forwards.* ``F(n + c)`` of an earlier stage waits for ``F'(n)`` of a later one, ``c = (L - between) // A``: before F'(n)
      starts no backward of the microbatches from n on has run on the device, those that have begun the earlier stage hold ``A``
      each, and n also what is claimed from behind the earlier stage up to the later one, ``between``.
    - *Input gradients* that claim more, ``e``. When ``I(n)`` starts, each microbatch from n on whose F has started holds ``A``.
      So ``F(n + c)`` waits for ``I(n)`` with ``c = (L - e) // A``: else ``A`` is held c + 1 times, and ``e``. And ``I(n + c)``
      waits for ``W(n)`` with ``c = (L - A - e) // r + 1``, where ``r`` is all that is held from F or I to that W: else the c
      microbatches from n on hold ``r`` each, and n + c holds ``A`` and ``e``.

    These are waits of a route's microbatches for each other: where each has a route of its own there are none.
    Every microbatch has to run all these families. Where there is no room for ``I`` at all, there is no schedule, and of ``I``
    nothing is said.
    """
    if graph.one_by_one:
        return ()
    found = []
    for place, reservoir in enumerate(graph.reservoirs):
        claims: dict[int, int] = {}
        for held in reservoir.held:
            claims[held.first] = claims.get(held.first, 0) + held.amount
        for route in sorted({graph.families[first].route for first in claims}):
            own = [o for o in graph.machines[place].families if graph.families[o].route == route]
            forwards = [o for o in own if graph.families[o].kind == Kind.F]
            before = 0
            for i, forward in enumerate(forwards):
                before += claims.get(forward, 0)
                found += _more(graph, reservoir, forward, claims, own, before)
                if not before:
                    continue
                found += _releases(graph, reservoir, forwards[: i + 1], own, before)
                between = 0
                for later in forwards[i + 1 :]:
                    between += claims.get(later, 0)
                    found.append(Precedence(later, forward, (reservoir.limit - between) // before))
    return tuple(sorted(found))


def _releases(graph: FamilyGraph, reservoir: Reservoir, forwards: list[int], own: list[int], before: int) -> list[Precedence]:
    """The waits of the last of ``forwards`` for the other families of its stage; all are of one device and route."""
    found = []
    stage = graph.families[forwards[-1]].stage
    for release in (o for o in own if graph.families[o].stage == stage and o not in forwards):
        until = sum(
            held.amount
            for held in reservoir.held
            if held.first in forwards and (held.last == release or graph.ancestors[held.last] >> release & 1)
        )
        if until:
            found.append(Precedence(release, forwards[-1], (reservoir.limit - before) // until + 1))
    return found


def _more(
    graph: FamilyGraph, reservoir: Reservoir, forward: int, claims: dict[int, int], own: list[int], before: int
) -> list[Precedence]:
    """The waits of and for the input gradient of a forward's stage, where it claims more; all are of one device and route."""
    input_ = next((o for o in own if o in claims and o != forward and _same_stage(graph, o, forward)), None)
    if input_ is None or reservoir.limit < before + claims[input_]:
        return []
    weight = next(held.last for held in reservoir.held if held.first == input_)
    until = sum(held.amount for held in reservoir.held if held.last == weight)
    found = [Precedence(weight, input_, (reservoir.limit - before - claims[input_]) // until + 1)]
    if before:
        found.append(Precedence(input_, forward, (reservoir.limit - claims[input_]) // before))
    return found


def _same_stage(graph: FamilyGraph, one: int, other: int) -> bool:
    return graph.families[one].stage == graph.families[other].stage


def held_from_forwards(graph: FamilyGraph) -> FamilyGraph:
    """The graph without what is held from an input gradient on: a relaxation, which also allows backwards that are run whole."""
    kinds = {graph.families[held.first].kind for held in graph.held}
    if kinds <= {Kind.F}:
        return graph
    reservoirs = (
        Reservoir(limit, tuple(hold for hold in held if graph.families[hold.first].kind == Kind.F))
        for limit, held in graph.reservoirs
    )
    graph = replace(graph, reservoirs=tuple(reservoirs))
    return replace(graph, implied=implied_by_memory(graph))
