"""The zero-bubble authors' heuristic on a V, which adapts the schedule ZB-V to uneven costs.

Qi et al. 2023, arXiv 2401.10241, section 6; after the scheduler in sail-sg/zero-bubble-pipeline-parallelism. Device d holds
stages d and 2D-1-d. A microbatch has four legs: forward out, forward back, backward out, backward back. Round by round every
device runs an input gradient and then a forward, each of the leg whose input is there, coming back before going out. A weight
gradient fills the gap before it.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np

from ppopt.clock import check_time
from ppopt.heuristics.progress import begun, idle, latest, operations, order_of
from ppopt.heuristics.room import room_for
from ppopt.heuristics.zero_bubble_loops import on_v
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order


def best_on_v(pipeline: Pipeline, activations: Fraction, pinned: Order) -> Schedule:
    """The schedule with the smallest device span, then makespan, of all settings and of the order ``pinned``.

    For a V whose backward is split. ``activations``: how many activations of a microbatch, over both chunks, a device may hold.
    """
    limits = room_for(pipeline, activations)
    orders = [pinned]
    for fill_forward, fill_out in product((False, True), repeat=2):
        allowance = np.zeros(pipeline.devices, np.int64)
        best: int | None = None
        while True:  # again with what each device idled, as long as that helps
            progress = begun(pipeline, limits)
            check_time(on_v.seconds * operations(progress))
            ended = on_v(operations(progress), latest(progress), fill_forward, fill_out, allowance, progress)
            idled = idle(progress)
            if not ended or (best is not None and int(idled.max()) >= best):
                break
            orders.append(order_of(pipeline, progress))
            best, allowance = int(idled.max()), idled.max() - idled
    schedules = [time_order(pipeline, order) for order in orders]
    return min(schedules, key=lambda schedule: (schedule.device_span, schedule.makespan))
