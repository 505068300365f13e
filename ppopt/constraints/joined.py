"""Weight gradients in pieces as whole ones again, for what needs no operation to run without a break."""

from __future__ import annotations

from dataclasses import replace

from ppopt.constraints.families import FamilyGraph, Precedence
from ppopt.constraints.words import Family
from ppopt.op import WHOLE


def joined(graph: FamilyGraph) -> FamilyGraph:
    """The graph in which all pieces of a weight gradient are one operation again, the very same where they are.

    A machine that may leave off in the middle of such an operation can run what it can run in pieces, those of one stage and
    route one after the other (:func:`ppopt.constraints.cuts.in_order`). So what holds of this graph without asking that
    operations run without a break holds of pieces: heads, work and tails. Other bounds need the pieces.
    """
    last: dict[Family, int] = {}
    for number, family in enumerate(graph.families):
        if family.piece >= 0:
            last[family._replace(piece=WHOLE)] = number
    if not last:
        return graph
    first = {number: family for number, family in enumerate(graph.families) if family.piece <= 0}
    whole = {number: family._replace(piece=WHOLE) for number, family in first.items()}
    at = {family: number for number, family in whole.items()}
    into = {n: at[f._replace(piece=WHOLE)] for n, f in enumerate(graph.families) if n not in first}
    duration = list(graph.duration)
    for number, begin in into.items():
        duration[begin] += graph.duration[number]

    def moved(precedences: tuple[Precedence, ...]) -> tuple[Precedence, ...]:
        each = (p._replace(before=into.get(p.before, p.before)) for p in precedences if p.after not in into)
        return tuple(dict.fromkeys(each))

    whole_graph = replace(
        graph,
        families=tuple(whole.get(number, family) for number, family in enumerate(graph.families)),
        duration=tuple(duration),
        precedences=moved(graph.precedences),
        implied=moved(graph.implied),
    )
    return whole_graph.kept_alone(sorted(first), into)
