"""What is proved of the times of devices in schedules of least device span, operation by operation."""

from __future__ import annotations

from ppopt.bounds.heads import heads, tails
from ppopt.bounds.latest_starts import latest_first_starts, same_graph
from ppopt.constraints import operations
from ppopt.pipeline import Pipeline
from ppopt.solvers.device_times import NOTHING_KNOWN, DeviceTimes


def device_times(pipeline: Pipeline) -> DeviceTimes:
    """Times that some schedule of least device span keeps, or of one that is asked for, whose microbatches run in order.

    By when devices have started (:func:`~ppopt.bounds.latest_starts.latest_first_starts`); and how far operations are at least
    from the first start and the last end on their own device: heads and tails of the graph of families
    (:func:`~ppopt.bounds.heads.heads`), which every schedule in order keeps. Nothing where the graph is not the pipeline's own.
    """
    graph = same_graph(pipeline)
    if graph is None:
        return NOTHING_KNOWN
    head: dict[int, int] = {}
    tail: dict[int, int] = {}
    first, last = (of(graph, memory=True, own=True) for of in (heads, tails))
    for family, device, early, late in zip(graph.families, graph.owner, first, last, strict=True):
        ops = operations(pipeline, family).tolist()
        head |= zip(ops, early[device].tolist(), strict=True)
        tail |= zip(ops, late[device][::-1].tolist(), strict=True)
    return DeviceTimes(latest_first_starts(graph), head, tail)
