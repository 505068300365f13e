"""The zero-bubble papers' automatic scheduler: a heuristic under a memory limit, the best of its eight settings.

Qi et al. 2023, arXiv 2401.10241; rebuilt from its description. Microbatch by microbatch, every device runs at most one forward
and exactly one input gradient. A weight gradient fills a gap before either, or makes room in memory. It decides by the true
durations and latencies of each device, where the original takes the median over the devices.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import NamedTuple

from ppopt.heuristics.progress import Progress
from ppopt.heuristics.room import room_for
from ppopt.op import Kind
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
        own = (pipeline.amounts.limit - pipeline.amounts.static).tolist()
        limits = [min(limit, room) for limit, room in zip(limits, own, strict=True)]
    every = (Settings(*setting) for setting in product((False, True), repeat=3))
    schedules = (time_order(pipeline, ZeroBubble(pipeline, limits, settings).order()) for settings in every)
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


class ZeroBubble(Progress):
    """One run of the heuristic. ``limits``: per device, the most that its activations may take, in integer amounts."""

    def __init__(self, pipeline: Pipeline, limits: list[int], settings: Settings) -> None:
        super().__init__(pipeline)
        self.limits, self.settings = limits, settings

    def order(self) -> Order:
        """Run it."""
        devices = range(self.pipeline.devices)
        self._first()
        for microbatch in range(1, self.microbatches):
            wanted = [self._wants_forward(d, microbatch) for d in devices]
            for d in reversed(devices[:-1]):
                wanted[d] = wanted[d] and wanted[d + 1]
            for d in devices:
                if wanted[d]:
                    self.make_room(d, self.activation[d], self.limits[d])
                    self._fill_and_run(Kind.F, d)
            for d in reversed(devices):
                if d == 0 and self.done(Kind.F, 0) == self.microbatches:
                    while self.pending[0]:  # nobody waits for the gradients of the first device
                        self.run_weight(0)
                if self.rebuilt[d]:
                    self.make_room(d, self.rebuilt[d], self.limits[d])
                self._fill_and_run(Kind.I, d)
        return self.finish()

    def _first(self) -> None:
        """Forwards up to the first input gradient, and that."""
        devices = range(self.pipeline.devices)
        for d in devices:
            self.run(Kind.F, d)
        more = [0 for _ in devices]
        handed = self.now[-1] + self.cost[Kind.I][-1]  # when the first gradient leaves the device after d
        for d in reversed(devices[:-1]):
            time, arrival = self.now[d], handed + self.latency[d + 1][d]
            while (
                1 + more[d] < self.microbatches
                and (2 + more[d]) * self.activation[d] + self.rebuilt[d] <= self.limits[d]
                and (time < arrival if self.settings.delay_first else time + self.cost[Kind.F][d] <= arrival)
            ):
                time += self.cost[Kind.F][d]
                more[d] += 1
            handed = max(time, arrival) + self.cost[Kind.I][d]
        for d in devices[1:]:  # a device keeps behind the one before it
            behind = more[d - 1] - 1 if 1 + more[d] < self.microbatches else more[d - 1]
            more[d] = max(0, min(more[d], behind))
        for d in devices:
            for _ in range(more[d]):
                self.run(Kind.F, d)
        for d in reversed(devices):
            self.run(Kind.I, d)

    def _wants_forward(self, d: int, microbatch: int) -> bool:
        """Whether device d runs a forward before its input gradient of this microbatch."""
        forwards = self.done(Kind.F, d)
        if forwards >= self.microbatches:
            return False
        if forwards <= microbatch:  # its own input gradient needs it
            return True
        excess = self.held[d] + self.activation[d] - self.limits[d]
        if excess + self.rebuilt[d] > len(self.pending[d]) * self.retained[d]:  # the next input gradient needs room too
            return False
        if not self.settings.prefer_input or d + 1 == self.pipeline.devices or forwards < self.done(Kind.F, d + 1) + 2:
            return True
        due = self.now[d + 1] + self.cost[Kind.F][d + 1] + self.cost[Kind.I][d + 1] + self.latency[d + 1][d]
        if self.now[d] >= due:
            return False
        first = max(0, -(-excess // self.retained[d])) if self.retained[d] else 0  # weight gradients that make room
        if self.now[d] + self.cost[Kind.F][d] + first * self.cost[Kind.W][d] <= due:
            return True
        return due - self.now[d] > max(self.idle) - self.idle[d]

    def _fill_and_run(self, kind: Kind, d: int) -> None:
        self.fill(kind, d, slack=0 if self.settings.fill_all else max(self.idle) - self.idle[d])
        self.run(kind, d)
