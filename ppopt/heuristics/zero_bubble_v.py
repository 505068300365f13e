"""The zero-bubble authors' heuristic on a V, which adapts the schedule ZB-V to uneven costs.

Qi et al. 2023, arXiv 2401.10241, section 6; after the scheduler in sail-sg/zero-bubble-pipeline-parallelism. Device d holds
stages d and 2D-1-d. A microbatch has four legs: forward out, forward back, backward out, backward back. Round by round every
device runs an input gradient and then a forward, each of the leg whose input is there, coming back before going out. A weight
gradient fills the gap before it.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

from ppopt.heuristics.progress import Progress
from ppopt.heuristics.room import room_for
from ppopt.op import Kind
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
        allowance = [0] * pipeline.devices
        best: int | None = None
        while True:  # again with what each device idled, as long as that helps
            attempt = ZeroBubbleV(pipeline, limits, allowance, fill_forward=fill_forward, fill_out=fill_out)
            order = attempt.order()
            if order is None or (best is not None and max(attempt.idle) >= best):
                break
            orders.append(order)
            best, allowance = max(attempt.idle), [max(attempt.idle) - idle for idle in attempt.idle]
    schedules = [time_order(pipeline, order) for order in orders]
    return min(schedules, key=lambda schedule: (schedule.device_span, schedule.makespan))


class ZeroBubbleV(Progress):
    """One run of the heuristic.

    ``limits``: per device, the most that its activations may take, in integer amounts. ``allowance``: per device, how many ticks
    longer than the others it may idle. ``fill_forward``, ``fill_out``: whether a weight gradient also goes into a gap that is too
    short for it before a forward, and before a backward going out; before one coming back it always does.
    """

    def __init__(
        self, pipeline: Pipeline, limits: list[int], allowance: list[int], *, fill_forward: bool, fill_out: bool
    ) -> None:
        super().__init__(pipeline)
        self.limits, self.allowance = limits, allowance
        devices = pipeline.devices
        self.most_rebuilt = [max(self.rebuilt[d], self.rebuilt[2 * devices - 1 - d]) for d in range(devices)]
        """Per device, the most that an input gradient takes."""
        self.fill_forward, self.fill_out = fill_forward, fill_out

    def order(self) -> Order | None:
        """Run it; ``None`` where it gets stuck."""
        devices = range(self.pipeline.devices)
        if not self._warm_up():
            return None
        for _ in range(2 * self.microbatches):
            back = [self._comes_back(d) for d in devices]
            for d in (*(d for d in reversed(devices) if back[d]), *(d for d in devices if not back[d])):
                if not self._fit(Kind.I, d, back[d], fill=back[d] or self.fill_out):
                    return None
            for d in devices:
                leg = self._next_forward(d)
                if leg is not None and not self._fit(Kind.F, d, leg, fill=self.fill_forward):
                    return None
        return self.finish()

    def _stage(self, kind: Kind, d: int, back: bool) -> int:
        """The device's stage of a leg."""
        return d if back == (kind is Kind.I) else 2 * self.pipeline.devices - 1 - d

    def _count(self, kind: Kind, d: int, back: bool) -> int:
        return self.done(kind, self._stage(kind, d, back))

    def _has_input(self, kind: Kind, d: int, back: bool) -> bool:
        stage = self._stage(kind, d, back)
        return self.done(kind, stage) < self.microbatches and self.arrival(kind, stage) is not None

    def _warm_up(self) -> bool:
        """The forwards before the first backward; whether it does not get stuck."""
        devices, microbatches = self.pipeline.devices, self.microbatches
        for d in range(devices):
            self.run(Kind.F, d)
        self.run(Kind.F, devices)
        for d in reversed(range(devices - 1)):  # more forwards go out until the first comes back
            arrival = self.arrival(Kind.F, 2 * devices - 1 - d)
            assert arrival is not None
            while (
                self.held[d] + (2 + 2 * d) * self.activation[d] + self.most_rebuilt[d] <= self.limits[d]
                and self.now[d] + self.cost[Kind.F][d] <= arrival
                and self.done(Kind.F, d) < microbatches
            ):
                for before in range(d + 1):
                    self.run(Kind.F, before)
            self.run(Kind.F, 2 * devices - 1 - d)
        back = False
        for d in range(1, devices):  # no device has begun less than the one before it
            idle_legs = 0
            while self._behind(d):
                idle_legs += 1
                for other in reversed(range(d, devices)):
                    if self._has_input(Kind.F, other, back):
                        self.run(Kind.F, self._stage(Kind.F, other, back))
                        idle_legs = 0
                if idle_legs == 2:  # neither leg has anything to run
                    return False
                back = not back
        return True

    def _behind(self, d: int) -> bool:
        here, before = ([self._count(Kind.F, of, back) for back in (False, True)] for of in (d, d - 1))
        return sum(here) < sum(before) or here[1] <= before[1] < self.microbatches

    def _comes_back(self, d: int) -> bool:
        """Whether the device's next input gradient is of the leg back."""
        if self._count(Kind.I, d, True) >= self._count(Kind.I, d, False):
            return False
        out_is_over = self._count(Kind.I, d, False) == self.microbatches
        return out_is_over or d == self.pipeline.devices - 1 or self._has_input(Kind.I, d, True)

    def _next_forward(self, d: int) -> bool | None:
        """The leg of the device's next forward: back (``True``), out, or none."""
        if self._count(Kind.F, d, True) == self.microbatches:
            return None
        if self._has_input(Kind.F, d, True):
            return True
        return False if self._has_input(Kind.F, d, False) else None

    def _fit(self, kind: Kind, d: int, back: bool, *, fill: bool) -> bool:
        stage = self._stage(kind, d, back)
        if not self._has_input(kind, d, back):
            return False
        claimed = self.activation[stage] if kind is Kind.F else self.rebuilt[stage]
        if claimed and not self.make_room(d, claimed, self.limits[d]):
            return False
        slack = max(*self.idle, self.allowance[d]) - self.idle[d]
        self.fill(kind, stage, slack=slack if fill else None)
        self.run(kind, stage)
        return True
