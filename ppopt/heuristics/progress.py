"""What the zero-bubble papers' schedulers keep account of (:mod:`ppopt.heuristics.zero_bubble_loops`), for a pipeline."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ppopt.heuristics.zero_bubble_loops import IDLE, LIMIT, PER_DEVICE, Progress
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Order


def begun(pipeline: Pipeline, limits: list[int]) -> Progress:
    """The devices before their first operation. ``limits``: per device, the most that its activations may take.

    For one route, the same number of stages on every device, and a split backward.
    """
    ticks, amounts, route, microbatches = pipeline.ticks, pipeline.amounts, pipeline.device_of[0], pipeline.microbatches
    stages, devices = pipeline.stages, pipeline.devices
    inward, back = np.zeros(stages, np.int64), np.zeros(stages, np.int64)
    for stage, (a, b) in enumerate(pairwise(route.tolist())):
        inward[stage + 1], back[stage] = ticks.lag[a, b], ticks.lag[b, a]
    costs = (ticks.duration[0, kind] for kind in (Kind.F, Kind.I, Kind.W))
    held = amounts.activation[0], amounts.retained[0], amounts.rebuilt[0]
    device = np.zeros((devices, PER_DEVICE), np.int64)
    device[:, LIMIT] = limits
    return Progress(
        stages,
        devices,
        microbatches,
        stage=np.stack([*costs, route, *held, inward, back], axis=1).ravel(),
        device=device.ravel(),
        done=np.zeros(3 * stages, np.int64),
        end=np.zeros(2 * stages * microbatches, np.int64),
        pending=np.zeros(stages * microbatches, np.int64),
        rows=np.zeros(3 * stages * microbatches, np.int64),
    )


def operations(progress: Progress) -> int:
    """How many there will be."""
    return len(progress.rows)


def latest(progress: Progress) -> int:
    """No time or amount is larger: all operations one after the other, each behind its transfer; all activations together."""
    return 4 * (len(progress.rows) + 1) * max(1, int(abs(progress.stage).max()), int(abs(progress.device).max()))


def order_of(pipeline: Pipeline, progress: Progress) -> Order:
    """The order in which everything was run."""
    return Order(pipeline.index, tuple(progress.rows.reshape(progress.devices, -1)))


def idle(progress: Progress) -> IntArray:
    """Per device, how many ticks it was idle since its first operation."""
    idle: IntArray = progress.device.reshape(-1, PER_DEVICE)[:, IDLE]
    return idle
