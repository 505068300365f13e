"""The zero-bubble papers' automatic scheduler: a heuristic under a memory limit, the best of its eight settings.

Qi et al. 2023, arXiv 2401.10241; rebuilt from its description. Microbatch by microbatch, every device runs at most one forward
and exactly one input gradient. A weight gradient fills a gap before either, or makes room in memory. It decides by the true
durations and latencies of each device, where the original takes the median over the devices.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import NamedTuple

from ppopt.clock import check_time
from ppopt.heuristics.progress import begun, latest, operations, order_of
from ppopt.heuristics.room import room_for
from ppopt.heuristics.zero_bubble_loops import linear
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order


def best_of_eight(pipeline: Pipeline, activations: Fraction) -> Schedule:
    """The schedule with the smallest device span, then makespan, of all settings.

    For a pipeline of one stage per device whose backward is split. ``activations``: how many activations of a microbatch a device
    may hold. The pipeline's own limit is kept too, where a microbatch with a split backward fits.
    """
    limits = room_for(pipeline, activations)
    if pipeline.amounts.limit is not None:
        own = pipeline.amounts.room.tolist()
        limits = [min(limit, room) for limit, room in zip(limits, own, strict=True)]
    every = (Settings(*setting) for setting in product((False, True), repeat=3))
    schedules = (time_order(pipeline, order_with(pipeline, limits, settings)) for settings in every)
    return min(schedules, key=lambda schedule: (schedule.device_span, schedule.makespan))


class Settings(NamedTuple):
    """What the heuristic leaves to be tried out."""

    delay_first: bool
    """Whether forwards before the first input gradient may delay it."""
    prefer_input: bool
    """Whether a forward that would delay the next input gradient is left for later."""
    fill_all: bool
    """Whether a weight gradient also goes into a gap that is too short for it, on every device. Else it goes there only where
    the device could afford to idle, since the one with the most idle time is later anyway."""


def order_with(pipeline: Pipeline, limits: list[int], settings: Settings) -> Order:
    """The order of one run. ``limits``: per device, the most that its activations may take, in integer amounts."""
    progress = begun(pipeline, limits)
    check_time(linear.seconds * operations(progress))
    linear(operations(progress), latest(progress), *settings, progress)
    return order_of(pipeline, progress)
