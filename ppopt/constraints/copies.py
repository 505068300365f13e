"""Activations that are copied to the host between forward and backward, in words."""

from __future__ import annotations

import numpy as np

from ppopt.constraints.words import Away, Capacity, Exclusive, Family, Hold, Listed, Maybe, OneOf, Precede, Word, chain
from ppopt.op import COPIES, Kind, Op, Send
from ppopt.pipeline import Pipeline
from ppopt.pipeline.offload import copied


def may_copy(pipeline: Pipeline) -> bool:
    """Whether some activation may be copied to the host."""
    return bool(pipeline.engines)


def copies_of(pipeline: Pipeline) -> tuple[Word, ...]:
    """What copies to the host and back obey.

    A copy out begins once the forward has ended, the copy in once that has, and the backward waits for it (a margin longer where
    there is one). An engine makes one copy at a time. A stage and microbatch is copied out and in, or not at all. What is on the
    host, from the begin of the copy out to the end of the copy in, is within the limit there.
    """
    words: list[Word] = []
    holds: list[Hold] = []
    for route, stage in _copying(pipeline):
        out, back = (Family(stage, send, route) for send in COPIES)
        words += [Precede(Family(stage, Kind.F, route), out), Precede(out, back)]
        lag = int(pipeline.ticks.margin[route, stage])
        kinds = (Kind.B, Kind.I) if pipeline.costs.split else (Kind.B,)
        words += [Precede(back, Family(stage, kind, route), lag=lag) for kind in kinds]
        which = copied(pipeline, route, stage)
        if which is None:
            words.append(Maybe((out, back)))
        else:
            words += [OneOf(((Listed(tuple(Op(stage, send, m) for m in which)),),)) for send in COPIES if which]
        holds.append(Hold(out, (back,), int(pipeline.amounts.away[route, stage])))
    words += [
        Exclusive(
            tuple(
                Family(stage, send, route)
                for route, stage in _copying(pipeline)
                if pipeline.routes[route][stage] in engine.devices
                for send in engine.sends
            )
        )
        for engine in pipeline.engines
    ]
    if pipeline.amounts.host is not None and holds:
        words.append(Capacity(tuple(holds), pipeline.amounts.host))
    return tuple(words)


def away_from(pipeline: Pipeline, device: int) -> tuple[Away, ...]:
    """What of a device's memory may be on the host."""
    return tuple(
        Away(Family(stage, Send.OFFLOAD, route), Family(stage, Send.RELOAD, route), int(pipeline.amounts.away[route, stage]))
        for route, stage in _copying(pipeline)
        if pipeline.routes[route][stage] == device
    )


def first_in_order(pipeline: Pipeline) -> tuple[Precede, ...]:
    """The first stage of each route runs its forwards in the order of the microbatches.

    Valid where microbatches of a route are alike, which they are where each or none of them has to be copied or all is open:
    renumber them as a whole, by their first forwards. In the other stages and kinds they may pass each other for a reason: who
    is copied has to be out in time, and one who comes back early need not be.
    """
    if any(copied(pipeline, *place) not in (None, (), _all(pipeline, place[0])) for place in _copying(pipeline)):
        return ()
    return tuple(chain(Family(0, Kind.F, route)) for route in range(len(pipeline.routes)))


def _all(pipeline: Pipeline, route: int) -> tuple[int, ...]:
    return tuple(pipeline.microbatches_of[route].tolist())


def _copying(pipeline: Pipeline) -> list[tuple[int, int]]:
    """The routes and stages of which something may be copied."""
    if pipeline.offload is None:
        return []
    return [(route, stage) for route, stage in np.argwhere(pipeline.ticks.copying[:, 0] >= 0).tolist()]
