"""What a priority rule looks at: what each job is, and how far it is from the beginning and the end of its microbatch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline, kind_of
from ppopt.schedule import halves


@dataclass(frozen=True, eq=False)
class Features:
    """Arrays with one entry per job. A pair has those of its backward; a transfer counts as a forward, for it is not ranked."""

    kind: IntArray
    stage: IntArray
    route: IntArray
    turn: IntArray
    """The place of its microbatch among those of its route."""
    head: IntArray
    """The least ticks that its microbatch needs before it starts."""
    tail: IntArray
    """The least ticks from its start until all that its microbatch does from there on has ended."""

    @classmethod
    def of(cls, pipeline: Pipeline, numbers: IntArray) -> Features:
        """Those of the jobs with these numbers (:class:`~ppopt.op.OpIndex`)."""
        first, second = halves(pipeline.index, numbers)
        family, microbatch = np.divmod(np.where(second >= 0, second, first), pipeline.microbatches)
        row, stage = np.divmod(family, pipeline.stages)
        kind = kind_of(pipeline.index, row)
        row, kind = (np.where(kind >= len(Kind), int(Kind.F), of) for of in (row, kind))
        route = pipeline.route_by_microbatch[microbatch]
        turn = np.zeros(pipeline.microbatches, dtype=np.int64)
        for microbatches in pipeline.microbatches_of:
            turn[microbatches] = np.arange(len(microbatches))
        head, tail = _heads_and_tails(pipeline)
        return cls(kind, stage, route, turn[microbatch], head[route, row, stage], tail[route, row, stage])


def _heads_and_tails(pipeline: Pipeline) -> tuple[IntArray, IntArray]:
    """``[route, row, stage]``, in ticks, for a microbatch that has all devices to itself."""
    duration = np.maximum(pipeline.ticks.duration, 0)
    head, tail = np.zeros_like(duration), np.zeros_like(duration)
    split, pieces = pipeline.costs.split, pipeline.index.weights
    for r, devices in enumerate(pipeline.routes):
        backs = pipeline.device_by_kind[r, Kind.B].tolist()
        forward = duration[r, Kind.F].tolist()
        gradient = duration[r, Kind.I if split else Kind.B].tolist()
        weight = pipeline.ticks.weight[r].tolist() if split else [0] * len(devices)
        lag = pipeline.ticks.lag
        out = [int(lag[a, b]) for a, b in pairwise(devices)]  # from stage s to s + 1
        back = [int(lag[b, a]) for a, b in pairwise(backs)]  # from stage s + 1 to s
        last = len(devices) - 1
        turn = int(lag[devices[last], backs[last]])  # from the last forward to its backward
        time = 0
        for s in range(last + 1):
            head[r, Kind.F, s] = time
            time += forward[s] + (out[s] if s < last else turn)
        for s in reversed(range(last + 1)):
            head[r, [Kind.B, Kind.I], s] = time
            for piece, row in enumerate(pieces):
                head[r, row, s] = time + gradient[s] + piece * duration[r, row, s]
            time += gradient[s] + (back[s - 1] if s else 0)
        time = 0
        for s in range(last + 1):
            time = gradient[s] + max(weight[s], time + (back[s - 1] if s else 0))
            tail[r, [Kind.B, Kind.I], s] = time
            for piece, row in enumerate(pieces):
                tail[r, row, s] = weight[s] - piece * duration[r, row, s]
        for s in reversed(range(last + 1)):
            time += forward[s] + (out[s] if s < last else turn)
            tail[r, Kind.F, s] = time
    return head, tail
