"""Microbatches in flight: begun, and not yet through with their last backward.

Where a device holds several stages and memory is limited, fewer of them leave room for the later stages.
"""

from __future__ import annotations

import numpy as np

from ppopt.constraints import Family, Precede, Word, weights_of
from ppopt.op import Kind
from ppopt.pipeline import Pipeline


def at_most_in_flight(pipeline: Pipeline, most: int) -> tuple[Word, ...]:
    """On every route at most ``most`` microbatches are in flight."""
    return tuple(
        Precede(last, Family(0, Kind.F, route), shift=most)
        for route in range(len(pipeline.routes))
        for last in (Family(0, Kind.B, route), *(weights_of(pipeline, 0, route)[-1:] if pipeline.costs.split else ()))
    )


def may_crowd(pipeline: Pipeline) -> bool:
    """Whether microbatches in flight may take the room of later stages: some device holds several, and memory is limited."""
    return pipeline.amounts.limit is not None and bool(np.bincount(pipeline.device_of.ravel()).max() > 1)


def crowds(pipeline: Pipeline) -> range:
    """How many microbatches in flight are worth trying: from what always fits to what the first device can begin.

    At most some seven numbers; none where they cannot crowd.
    """
    amounts = pipeline.amounts
    if amounts.limit is None or not may_crowd(pipeline):
        return range(0)
    first = pipeline.routes[0][0]
    room = int(amounts.room[first])
    whole = int(amounts.activation[0][pipeline.device_of[0] == first].sum())
    one = int(amounts.activation[0, 0])
    if not one:
        return range(0)
    least, most = (min(room // amount, pipeline.microbatches) for amount in (whole, one))
    return range(max(least, 1), most + 1, max(1, (most - least) // 6))
