"""Lower bounds of the step time of a combination in closed form: over every placement, cut and choice of what recomputes.

*Sizes.* Let a schedule take T, and x be a weight from 0 to 1. A device that holds the layers H does their work M times, and once
what they take per step, within T. It also holds their weights for all of T. Of each microbatch it holds the activations of each
layer from its F to its backward, at least as long as the way from there to the last layer and back. With R the memory of a device
beside what is static, the sum over H of

    x (M (work + recompute) + step) / T  +  (1 - x) (weights + M activation way / T) / R

is thus at most 1, whatever recomputes: each layer counts with the level for which that is least. So is, without time, the sum of
the weights and the activations of one microbatch over R. These are the sizes of the layers, one for each x. It follows:

- all sizes together are at most the number of devices;
- of alike layers a device has room for so many, the smallest first, and for fewer beside another layer;
- on the linear placement a device holds layers in a row, whole microbatches, and has to wait for the layers before.

Each says of a T whether it is impossible. Times are in ms, memory in GB, in doubles; a margin of 1e-9 covers their rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ppopt.pipeline import CHOOSE, Layers
from ppopt.pipeline.cutting import times_of_layers
from ppopt.pipeline.layers import STEP

Floats: TypeAlias = NDArray[np.float64]
SHARES = (1.0, 0.97, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1, 0.03, 0.0)
"""The weights x."""
FINE = 1e-4
"""Of a bound: how far it may be below what the argument gives, a fraction."""
MARGIN = 1e-9
SMALL = 1e-6
"""Times of any use are longer, in ms."""


class Floors:
    """What is known of every schedule of a combination before any is made."""

    def __init__(
        self, layers: Layers, recompute: str, devices: int, microbatches: int, room: float | None, latency: float
    ) -> None:
        self.layers, self.devices, self.microbatches, self.latency = len(layers), devices, microbatches, latency
        self.of_group = np.array(layers.group_of)
        times = np.array([[float(value) for value in row] for row in times_of_layers(layers, "none")])
        self.forward, self.gradient, self.rest = times.T
        each = {name: self._each(layers, name) for name in ("activation", "weights", *STEP)}
        self.after = each["reduce_scatter"] + each["optimizer"]
        self.step = self.after + each["all_gather"]
        self.work = times.sum(axis=1)
        again, held = _levels(layers, recompute)
        self.weights, self.again, self.keeps = each["weights"], again, held
        self.way = np.cumsum((self.forward + self.gradient)[::-1])[::-1]
        self.needs: Floats = self.weights + held.min(axis=1)
        """What each layer holds at least, with one microbatch."""
        self.room = math.inf if room is None else max(room, 1e-6)
        self.shares = np.array(SHARES if room is not None else (1.0,))
        timed = self._timed(microbatches * self.way[:, None])
        self.timed: Floats = np.vstack([timed, np.zeros(self.layers)])
        """The part of the sizes that is divided by the time: ``[share, layer]``; in the last row that of the memory alone."""
        fixed = (1 - self.shares[:, None]) * self.weights / self.room
        self.held: Floats = np.vstack([fixed, self.needs / self.room])
        """The other part."""

    def _timed(self, held: Floats) -> Floats:
        """``[share, layer]``, where layers hold activations so long, all microbatches together: one time for each, or for all."""
        work = self.microbatches * (self.work[:, None] + self.again)
        share = self.shares[:, None, None]
        level: Floats = (share * work[None] + (1 - share) * (self.keeps * held / self.room)[None]).min(axis=2)
        return level + self.shares[:, None] * self.step

    @staticmethod
    def _each(layers: Layers, name: str) -> Floats:
        values = [float(value or 0) for value in layers.each(name)]
        return np.array([values[group] for group in layers.group_of])

    # --- memory ---

    @cached_property
    def fits(self) -> bool:
        """Whether there may be a cut in which a microbatch fits."""
        return not self._impossible(math.inf) and self.least < math.inf

    def fullest(self) -> tuple[float, int]:
        """What the fullest device holds at least with one microbatch, and which it is, in the linear cut where that is least."""
        sums = np.add.reduceat(self.needs, [0, *accumulate(linear_cut(self.needs, self.devices))][:-1])
        return float(sums.max()), int(sums.argmax())

    # --- any placement ---

    @cached_property
    def least(self) -> float:
        """No schedule on any placement takes less; infinite where none fits."""
        left = self.devices - self.held.sum(axis=1)
        if (left < -MARGIN * self.devices).any():
            return math.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            shared = np.where(self.timed.sum(axis=1) > 0, self.timed.sum(axis=1) / np.maximum(left, 1e-300), 0.0)
        way = float((self.forward + self.gradient).sum())
        return self._raised(max(float(shared.max()), way), self._impossible)

    def _impossible(self, time: float) -> bool:
        """Whether some layers have too little room for a schedule of that time, however they are dealt."""
        sizes = self.timed / time + self.held
        for group in range(int(self.of_group[-1]) + 1):
            own = self.of_group == group
            count = int(own.sum())
            if count < 2:
                continue
            sums = np.cumsum(np.sort(sizes[:, own], axis=1), axis=1)
            most = self._room(sums, np.zeros(len(sizes)))
            others = [self._room(sums, sizes[:, other]) for other in np.flatnonzero(~own)[:: max(1, int((~own).sum()) // 8)]]
            if count > (self.devices - 1) * most + min(others, default=most):
                return True
        return bool((sizes.max(axis=1) > 1 + MARGIN).any())

    @staticmethod
    def _room(sums: Floats, beside: Floats) -> int:
        """How many layers of a group a device has room for beside another layer."""
        fits = sums + beside[:, None] <= 1 + MARGIN
        return int(fits.sum(axis=1).min())

    @staticmethod
    def _raised(floor: float, impossible: Callable[[float], bool]) -> float:
        """The largest bound above ``floor`` up to which everything is impossible; infinite where nothing is possible."""
        floor *= 1 - MARGIN
        if impossible(math.inf):
            return math.inf
        low = max(floor, SMALL)
        high = low * 1.05
        if not impossible(low):
            return floor
        while impossible(high):
            low, high = high, high * 1.5
            if high > 1e12 * max(floor, SMALL):
                return high
        while high - low > FINE * low:
            middle = (low + high) / 2
            low, high = (middle, high) if impossible(middle) else (low, middle)
        return low * (1 - MARGIN)

    # --- the linear placement ---

    @cached_property
    def linear(self) -> float:
        """No schedule on the linear placement takes less."""
        return (
            max(self.least, self._raised(self.least, lambda time: self.cut(time) is None)) if self.least < math.inf else math.inf
        )

    def cut(self, time: float) -> tuple[int, ...] | None:
        """A linear cut that may allow a schedule of that time; ``None``: there is none.

        A stage holds all its activations from the start of its F on, and whole microbatches: as many as it takes to run all of
        them within the time, each as long as the way through the stages that follow.
        """
        count, time = self.layers, max(time, SMALL)
        fits = np.triu(np.ones((count + 1, count + 1), dtype=bool), 1)
        needs, step, work = (np.concatenate(([0.0], np.cumsum(of))) for of in (self.needs, self.step, self.work))
        inside = needs[None, :] - needs[:, None]
        fits &= inside <= self.room * (1 + MARGIN)
        inside = self.microbatches * (work[None, :] - work[:, None]) + step[None, :] - step[:, None]
        fits &= inside <= time * (1 + MARGIN)
        if time < math.inf:
            for first in np.flatnonzero(fits.any(axis=1)).tolist():
                flying = max(1, math.ceil(self.microbatches * self.way[first] / time * (1 - MARGIN)))
                sizes = self._timed(np.array(flying * time)) / time + self.held[:-1]
                sums = np.cumsum(sizes[:, first:], axis=1)
                fits[first, first + 1 :] &= (sums <= 1 + MARGIN).all(axis=0)
        forward, gradient, rest, after = (
            np.concatenate(([0.0], np.cumsum(of))) for of in (self.forward, self.gradient, self.rest, self.after)
        )

        def own(of: Floats) -> Floats:
            found: Floats = of[None, :] - of[:, None]
            return found

        late = forward[:, None] + self.microbatches * own(forward + gradient + rest) + own(after)
        back = (forward + gradient)[:, None] + self.microbatches * own(forward + gradient)
        reached: list[NDArray[np.bool_]] = [np.zeros(count + 1, dtype=bool)]
        reached[0][0] = True
        slack = 1 + MARGIN
        for device in range(self.devices):
            late_too = late + device * self.latency <= time * slack
            back_too = back + 2 * device * self.latency <= time * slack
            reached.append(np.asarray((reached[-1][:, None] & fits & late_too & back_too).any(axis=0)))
        if not reached[-1][count]:
            return None
        counts: list[int] = []
        end = count
        for device in reversed(range(self.devices)):
            allowed = reached[device] & fits[:, end] & (late[:, end] + device * self.latency <= time * slack)
            allowed &= back[:, end] + 2 * device * self.latency <= time * slack
            begins = np.flatnonzero(allowed)
            even = end * device / (device + 1)  # about as many for each of those that are left
            begin = int(begins[np.abs(begins - even).argmin()])
            counts.append(end - begin)
            end = begin
        return tuple(reversed(counts))

    # --- cuts on any placement ---

    def of_cut(self, counts: tuple[int, ...], device_of: tuple[int, ...]) -> float:
        """A bound for a cut, with the device of each stage; infinite where not one microbatch fits."""
        ends = [0, *accumulate(counts)]
        timed, held = np.zeros((len(self.timed), self.devices)), np.zeros((len(self.timed), self.devices))
        for device, (begin, end) in zip(device_of, pairwise(ends), strict=True):
            timed[:-1, device] += self._of_stages[begin][:, begin:end].sum(axis=1)
            held[:, device] += self.held[:, begin:end].sum(axis=1)
        left = 1 + MARGIN - held
        if (left <= 0).any():
            return math.inf
        return float((timed / left).max())

    @cached_property
    def _of_stages(self) -> list[Floats]:
        """By the first layer of a stage, :attr:`timed` of its layers."""
        return [self._timed(np.array(self.microbatches * self.way[begin])) for begin in range(self.layers)]


def _levels(layers: Layers, recompute: str) -> tuple[Floats, Floats]:
    """``[layer, level]``: what a layer takes longer and holds at each level that it may have."""
    rows = []
    for number, (group, held) in enumerate(zip(layers.groups, layers.each("activation"), strict=True)):
        levels = [(0.0, float(held or 0))]
        if recompute == CHOOSE and layers.has_backward(number):
            levels += [(float(level.time), float((held or 0) - level.saved)) for level in group.recompute]
        elif recompute != CHOOSE and (level := layers.level_of(number, recompute)) is not None:
            levels = [(float(level.time), float((held or 0) - level.saved))]
        rows.append(levels)
    most = max(map(len, rows))
    table = np.array([levels + [levels[-1]] * (most - len(levels)) for levels in rows])
    each = table[np.array(layers.group_of)]
    return each[:, :, 0], each[:, :, 1]


def linear_cut(sizes: Floats, parts: int) -> tuple[int, ...]:
    """The cut of a row into parts that are not empty whose largest sum is least."""
    before = np.concatenate(([0.0], np.cumsum(sizes)))
    count = len(sizes)
    best, cuts = np.full(count + 1, math.inf), []
    best[0] = 0.0
    inside = np.where(np.triu(np.ones((count + 1, count + 1), dtype=bool), 1), before[None, :] - before[:, None], math.inf)
    for _ in range(parts):
        table = np.maximum(best[:, None], inside)
        cuts.append(table.argmin(axis=0))
        best = table.min(axis=0)
    counts, end = [], count
    for cut in reversed(cuts):
        counts.append(end - int(cut[end]))
        end = int(cut[end])
    return tuple(reversed(counts))
