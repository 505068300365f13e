"""What operations take of a device's memory when they start, and give back when they end."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import numpy as np

from ppopt.op import Kind, Send
from ppopt.pipeline.arrays import IntArray, halves
from ppopt.pipeline.model import Pipeline


def memory_changes(pipeline: Pipeline, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """What each operation claims at its start and releases at its end (integer amounts of ``pipeline.amounts``)."""
    index, amounts = pipeline.index, pipeline.amounts
    route = pipeline.route_by_microbatch
    claimed = np.zeros(len(numbers), dtype=np.int64)
    released = np.zeros(len(numbers), dtype=np.int64)
    for half in halves(index, numbers):
        family, microbatch = np.divmod(half, index.microbatches)
        kind, stage = np.divmod(family, index.stages)
        activation, retained = (table[route[microbatch], stage] for table in (amounts.activation, amounts.retained))
        present = half >= 0
        working = amounts.working[pipeline.device_of[route[microbatch], stage]]
        backward = present & (kind > Kind.F) & (kind <= Kind.W)
        claimed += np.where(backward, working, 0)
        released += np.where(backward, working, 0)
        claimed += np.where(present & (kind == Kind.F), activation, 0)
        claimed += np.where(present & (kind == Kind.I), np.maximum(retained - activation, 0), 0)
        released += np.where(present & (kind == Kind.B), activation, 0)
        released += np.where(present & (kind == Kind.I), np.maximum(activation - retained, 0), 0)
        released += np.where(present & (kind == Kind.W), retained, 0)
    return claimed, released


def most_on_host(pipeline: Pipeline, copies: Iterable[tuple[IntArray, IntArray, IntArray]]) -> int:
    """The most that is on the host at a time: of each engine its copies by number, their starts, and how long they take."""
    changes = [(0, 0)]
    for row, start, takes in copies:
        family, microbatch = np.divmod(row, pipeline.microbatches)
        kind, stage = np.divmod(family, pipeline.stages)
        away = pipeline.amounts.away[pipeline.route_by_microbatch[microbatch], stage]
        out = kind == Send.OFFLOAD
        when = np.where(out, start, start + takes)
        changes += zip(when.tolist(), np.where(out, away, -away).tolist(), strict=True)
    return max(accumulate(amount for _, amount in sorted(changes)))
