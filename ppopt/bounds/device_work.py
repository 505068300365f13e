"""The work of devices: a lower bound in a moment, however many operations there are."""

from __future__ import annotations

import numpy as np

from ppopt.bounds.bound import Bound, check_objective
from ppopt.bounds.copies import beside_copies
from ppopt.constraints import Share, pairs_save_time, shared
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Objective


@beside_copies
def work(pipeline: Pipeline, objective: Objective = "makespan", *, pairs: bool = False) -> Bound | None:
    """The largest work of a device: it runs one operation at a time, every backward the cheaper way; with the least that it does
    before its operations and behind them.

    ``pairs``: the bound is for schedules with overlapped pairs, too: as many as can be.
    """
    check_objective(objective)
    shares = (Share.BACKWARD, Share.FORWARD) if pairs and pairs_save_time(pipeline) else (None,)
    around = _around(pipeline)
    value, busiest = max((value, -d) for share in shares for d, value in enumerate((_works(pipeline, share) + around).tolist()))
    doing = "computes, and does what comes before and after," if around.any() else "computes"
    return Bound(value, "work", f"device {-busiest} {doing} for that long")


def _works(pipeline: Pipeline, share: Share | None) -> IntArray:
    """``[device]``: what its operations take (:func:`~ppopt.constraints.graphs.shared`)."""
    found = np.zeros(pipeline.devices, dtype=np.int64)
    for kind, times in zip((Kind.F, Kind.B, Kind.W), shared(pipeline, share), strict=True):
        np.add.at(found, pipeline.device_by_kind[:, kind], _counts(pipeline) * times)
    return found


def _around(pipeline: Pipeline) -> IntArray:
    """``[device]``: the least that there is before an operation, and behind one."""
    taken = np.flatnonzero(_counts(pipeline)[:, 0])
    found = np.zeros(pipeline.devices, dtype=np.int64)
    for margins in (pipeline.ticks.lead, pipeline.ticks.tail):
        least = np.full(pipeline.devices, np.iinfo(np.int64).max)
        for kind in (Kind.F, Kind.B):
            np.minimum.at(least, pipeline.device_by_kind[taken, kind], margins[taken, kind])
        found += np.where(least == np.iinfo(np.int64).max, 0, least)
    return found


def _counts(pipeline: Pipeline) -> IntArray:
    """``[route, 1]``: how many microbatches take it."""
    return np.array([[len(microbatches)] for microbatches in pipeline.microbatches_of])
