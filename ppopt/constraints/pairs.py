"""Overlapped pairs as a decision: where they save time, any forward of a device may run with any of its backwards."""

from __future__ import annotations

import numpy as np

from ppopt.constraints.words import Family, Pairable
from ppopt.op import Kind
from ppopt.pipeline import Pipeline, splitting_takes_memory


def pairs_of(pipeline: Pipeline, *, alone: bool = True, full: bool = False) -> tuple[Pairable, ...]:
    """What may run as overlapped pairs: for each device where some pair saves time, its forwards and its backwards.

    *What is left out loses nothing.* A pair that takes no less than its forward and the cheaper way of its backward one after
    the other can be run as these: they start when both inputs are there, every result exists no later, and no more memory is
    claimed, and none given back later.

    Without ``alone`` a full backward is run in a pair or not at all. Valid, as a restriction that keeps the optimum, where
    ``I`` + ``W`` takes no longer than ``B``, and no more memory (:func:`~ppopt.constraints.cuts.splitting_is_free`): alone, it is
    run as those.

    ``full``: what a pair takes is compared with its forward and the full backward. That loses nothing either where other words
    tell the ways of a backward apart, provided that these words ask for no more where operations end earlier or start later. It
    is done anyway where a split backward may take more memory than the pair.
    """
    if (pipeline.ticks.overlap < 0).all():
        return ()
    full = full or splitting_takes_memory(pipeline)
    words = []
    for device in range(pipeline.devices):
        forwards, backwards = _families(pipeline, device, Kind.F), _families(pipeline, device, Kind.B)
        way = _full if full else _backward
        most = max((way(pipeline, family) for family in backwards), default=0)
        saving = tuple(f for f in forwards if 0 <= overlap(pipeline, f) < _forward(pipeline, f) + most)
        if saving:
            words.append(Pairable(saving, backwards, alone))
    return tuple(words)


def pairs_save_time(pipeline: Pipeline) -> bool:
    """Whether some overlapped pair is shorter than its forward and its backward run one after the other."""
    return bool(pairs_of(pipeline))


def overlap(pipeline: Pipeline, forward: Family) -> int:
    """Ticks of a pair with this forward; -1: the costs give none, and it takes as long as its halves."""
    return int(pipeline.ticks.overlap[forward.route, forward.stage])


def _families(pipeline: Pipeline, device: int, kind: Kind) -> tuple[Family, ...]:
    """Those of a device that are run by some microbatch."""
    return tuple(
        Family(stage, kind, route)
        for route, devices in enumerate(pipeline.device_by_kind[:, kind])
        if len(pipeline.microbatches_of[route])
        for stage in np.flatnonzero(devices == device).tolist()
    )


def _forward(pipeline: Pipeline, family: Family) -> int:
    return int(pipeline.ticks.duration[family.route, Kind.F, family.stage])


def _backward(pipeline: Pipeline, family: Family) -> int:
    """Ticks of the cheaper way to run a backward."""
    at = family.route, family.stage
    full, input_ = (int(pipeline.ticks.duration[family.route, kind, family.stage]) for kind in (Kind.B, Kind.I))
    weight = int(pipeline.ticks.weight[at])
    return min(full, input_ + weight) if input_ >= 0 else full


def _full(pipeline: Pipeline, family: Family) -> int:
    """Ticks of a full backward."""
    return int(pipeline.ticks.duration[family.route, Kind.B, family.stage])
