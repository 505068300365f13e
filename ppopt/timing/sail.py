"""sail's rule for copies to the host: slots on a line, out from the left, in from the right.

As in zero-bubble-pipeline-parallelism (zerobubble/scheduler/offloading.py; PipeOffload, arXiv 2503.01328): a device's line
is cut into slots of one copy (the longest, where they differ), out and in in turn; the second device of a pair that shares
engines has them a slot later. From the left, each activation takes the earliest free slot out at or after the end of its
forward. From the right, each takes the latest free slot in that ends the length of one backward before its backward starts.
One whose life is shorter than three times both copies, once that length is taken off, stays. One that would come back before
it has gone is not copied. Its cheaper copies out before the first one in, and its delay of the first forwards, are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.timing.links import FloatArray

SHORT = 3
"""Lives of up to so many times both copies are too short."""


class Copy(NamedTuple):
    """The copies of one activation: both by number, its device, when it is made and when it is needed, and what they take."""

    out: int
    back: int
    device: int
    made: int
    needed: int
    takes: tuple[int, int]


def sail(pipeline: Pipeline, every: Sequence[Copy], schedule: Schedule) -> FloatArray:
    """By number when the copies begin that sail's rule makes of the activations of ``schedule``, in ticks; NaN: none.

    ``every``: all that may be copied, by the end of their forwards.
    """
    assert pipeline.offload is not None
    times = np.full(pipeline.index.size, np.nan)
    place = {device: i for group in pipeline.offload.shared for i, device in enumerate(group)}
    for device in range(pipeline.devices):
        own = [copy for copy in every if copy.device == device]
        slot = max((max(copy.takes) for copy in own), default=0)
        chosen = [copy for copy in own if _lives(pipeline, copy) > SHORT * 2 * slot]
        if slot:
            _fill(times, pipeline, chosen, slot, (place.get(device, 0) % 2) * slot)
        else:
            for copy in chosen:
                times[[copy.out, copy.back]] = copy.made, copy.needed
    return times


def _lives(pipeline: Pipeline, copy: Copy) -> int:
    """From the end of the forward to one backward before the backward."""
    return copy.needed - backward(pipeline, copy) - copy.made


def backward(pipeline: Pipeline, copy: Copy) -> int:
    """The length of the backward, or of the input gradient where that is given."""
    family, microbatch = divmod(copy.out, pipeline.microbatches)
    lengths = pipeline.ticks.duration[pipeline.route_of_microbatch[microbatch], :, family % pipeline.stages]
    return int(lengths[Kind.I] if pipeline.costs.split else lengths[Kind.B])


def _fill(times: FloatArray, pipeline: Pipeline, copies: Sequence[Copy], slot: int, offset: int) -> None:
    """Give slots out at ``offset``, ``offset + 2 * slot``, ...; slots in between these."""
    taken: set[int] = set()
    gone: dict[int, int] = {}
    for copy in copies:
        n = max(0, -(-(copy.made - offset) // (2 * slot)))
        while n in taken:
            n += 1
        taken.add(n)
        gone[copy.out] = offset + 2 * slot * n
    taken.clear()
    for copy in sorted(copies, key=lambda copy: -copy.needed):
        n = (copy.needed - backward(pipeline, copy) - 2 * slot - offset) // (2 * slot)
        while n in taken:
            n -= 1
        back = offset + 2 * slot * n + slot
        if back >= gone[copy.out] + slot:
            taken.add(n)
            times[copy.out], times[copy.back] = gone[copy.out], back
