"""What memory limits imply: waits between the families of one device, whatever the number of microbatches is."""

from __future__ import annotations

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

    Every microbatch has to run all these families.
    """
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
