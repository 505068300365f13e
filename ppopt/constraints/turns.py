"""In which order microbatches that differ run: that of the model where it is given, and that of the pieces of a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ppopt.constraints.words import Family, Precede
from ppopt.op import Kind
from ppopt.pipeline import GIVEN, Group, Pipeline, groups_of, way_of_microbatch


def microbatch_turns(pipeline: Pipeline) -> tuple[Precede, ...]:
    """What the mix of a pipeline says of the order of its microbatches, on every stage; nothing where they are alike.

    Forwards run in the order of the microbatches where that is given, and so do backwards, ``B`` or ``I``; ``W`` may wait.
    A piece of a sequence runs forward behind the piece before it, and backward behind the piece after it.
    """
    if not pipeline.mix.differs:
        return ()
    of_way: list[list[Group]] = [[] for _ in pipeline.ways]
    for group in groups_of(pipeline.mix, pipeline.ways, way_of_microbatch(pipeline)):
        of_way[group.way].append(group)
    back = (Kind.B, Kind.I) if pipeline.costs.split else (Kind.B,)
    ordered = pipeline.mix.microbatch_order == GIVEN
    return tuple(
        word
        for groups in of_way
        if len(groups) > 1 or len(groups[0].routes) > 1
        for stage in range(pipeline.stages)
        for kinds, step in (((Kind.F,), 1), (back, -1))
        for word in _turns(groups, stage, kinds, step, ordered)
    )


def _turns(groups: Sequence[Group], stage: int, kinds: Sequence[Kind], step: int, ordered: bool) -> Iterator[Precede]:
    """Those of one way, stage and direction. ``step``: the pieces of a sequence run from the first one on, or from the last."""

    def words(before: int, after: int, shift: int) -> Iterator[Precede]:
        for one in kinds:
            for other in kinds:
                yield Precede(Family(stage, one, before), Family(stage, other, after), shift)

    for group in groups:
        pieces = group.routes[::step]
        for before, after in pairwise(pieces):
            yield from words(before, after, 0)
        if ordered and len(group.sequences) > 1:
            yield from words(pieces[-1], pieces[0], 1)
    for one, other in pairwise(groups) if ordered else ():
        yield from words(one.routes[::step][-1], other.routes[::step][0], 0)


def turn_of(pipeline: Pipeline) -> dict[int, int]:
    """By route its turn on the way back through the stages, on the way there they take turns as they are numbered."""
    if not pipeline.mix.differs:
        return {}
    groups = groups_of(pipeline.mix, pipeline.ways, way_of_microbatch(pipeline))
    return {route: turn for turn, route in enumerate(route for group in groups for route in group.routes[::-1])}
