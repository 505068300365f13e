"""Lower bounds of the step time of a combination in closed form: over every placement, cut and choice of what recomputes.

*Sizes.* Let a schedule take T, and x be a weight from 0 to 1. A device that holds the layers H does their work M times, and once
what they take per step, within T. It also holds their weights for all of T. Of each microbatch it holds the activations of each
layer from its F to the end of its gradient of the input, at least as long as the way from there to the last layer and back, and
what is retained for the rest of its backward. With R the memory of a device beside what is static, the sum over H of

    x (M (work + recompute) + step) / T  +  (1 - x) (weights + M (activation way + retained rest) / T) / R

is thus at most 1, whatever recomputes: each layer counts with the level for which that is least. So is, without time, the sum of
the weights and the activations of one microbatch over R. These are the sizes of the layers, one for each x. It follows:

- all sizes together are at most the number of devices (:attr:`Floors.shared`);
- of alike layers a device has room for so many, the smallest first, and for fewer beside another layer (:attr:`Floors.least`).

Each says of a T whether it is impossible. What a placement says beside is in :mod:`ppopt.study.planning.least_cuts`. Times are in
ms, memory in GB, in doubles; a margin of 1e-9 covers their rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ppopt.pipeline import CHOOSE, Layers
from ppopt.pipeline.layer_times import times_of_layers
from ppopt.pipeline.layers import STEP

Floats: TypeAlias = NDArray[np.float64]
SHARES = (1.0, 0.97, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1, 0.03, 0.0)
"""The weights x."""
FINE = 1e-4
"""Of a bound: how far it may be below what the argument gives, a fraction."""
MARGIN = 1e-9
SMALL = 1e-6
"""Times of any use are longer, in ms."""


class Rows(NamedTuple):
    """What each layer takes and holds: arrays ``[layer]``; by level ``[layer, level]``, the first without recomputing."""

    group: NDArray[np.int64]
    forward: Floats
    gradient: Floats
    """What the gradient of the input takes."""
    rest: Floats
    """What the backward takes beside it, run the cheaper way."""
    weights: Floats
    gather: Floats
    """Before the first operation, once per step."""
    after: Floats
    """After the last operation, once per step."""
    again: Floats
    """What computing again takes, by level."""
    keeps: Floats
    """What is held from F to the gradient of the input, by level."""
    kept: Floats
    """What is held from there to the end of the backward at least, by level; no more than :attr:`keeps`."""

    @classmethod
    def of(cls, layers: Layers, recompute: str) -> Rows:
        """Those of layers."""
        group = np.array(layers.group_of)
        each = {
            name: np.array([float(value or 0) for value in layers.each(name)])[group] for name in ("weights", "activation", *STEP)
        }
        times = np.array([[float(value) for value in row] for row in times_of_layers(layers, "none")])
        again, held = _levels(layers, recompute)
        retained = np.array([math.inf if value is None else float(value) for value in layers.each("retained")])[group]
        return cls(
            group,
            times[:, 0],
            times[:, 1],
            times[:, 2],
            each["weights"],
            each["all_gather"],
            each["reduce_scatter"] + each["optimizer"],
            again,
            held,
            np.minimum(held, retained[:, None]),
        )


class Floors:
    """What is known of every schedule of a combination before any is made."""

    def __init__(self, rows: Rows, devices: int, microbatches: int, room: float | None, latency: float) -> None:
        self.rows, self.layers = rows, len(rows.group)
        self.devices, self.microbatches, self.latency = devices, microbatches, latency
        self.of_group, self.forward, self.gradient, self.rest = rows.group, rows.forward, rows.gradient, rows.rest
        self.after, self.step = rows.after, rows.after + rows.gather
        self.work = rows.forward + rows.gradient + rows.rest
        self.weights, self.again, self.keeps = rows.weights, rows.again, rows.keeps
        self.way = np.cumsum((self.forward + self.gradient)[::-1])[::-1]
        self.needs: Floats = self.weights + self.keeps.min(axis=1)
        """What each layer holds at least, with one microbatch."""
        self.room = math.inf if room is None else max(room, 1e-6)
        self.shares = np.array(SHARES if room is not None else (1.0,))
        timed = self._timed(self._area(self.way))
        self.timed: Floats = np.vstack([timed, np.zeros(self.layers)])
        """The part of the sizes that is divided by the time: ``[share, layer]``; in the last row that of the memory alone."""
        fixed = (1 - self.shares[:, None]) * self.weights / self.room
        self.held: Floats = np.vstack([fixed, self.needs / self.room])
        """The other part."""

    def _area(self, way: Floats) -> Floats:
        """``[layer, level]``: what layers hold, times how long, of all microbatches; ``way``: from F to the end of the gradient
        of the input. What is retained is held for the rest of the backward, too."""
        area: Floats = self.microbatches * (self.keeps * way[..., None] + self.rows.kept * self.rest[:, None])
        return area

    def _timed(self, area: Floats) -> Floats:
        """``[share, layer]``, where layers hold so much for so long."""
        work = self.microbatches * (self.work[:, None] + self.again)
        share = self.shares[:, None, None]
        level: Floats = (share * work[None] + (1 - share) * (area / self.room)[None]).min(axis=2)
        return level + self.shares[:, None] * self.step

    # --- memory ---

    @cached_property
    def fits(self) -> bool:
        """Whether there may be a cut in which a microbatch fits."""
        return self.shared < math.inf and not self._impossible(math.inf)

    def fullest(self) -> tuple[float, int]:
        """What the fullest device holds at least with one microbatch, and which it is, in the linear cut where that is least."""
        sums = np.add.reduceat(self.needs, [0, *accumulate(linear_cut(self.needs, self.devices))][:-1])
        return float(sums.max()), int(sums.argmax())

    # --- any placement ---

    @cached_property
    def shared(self) -> float:
        """No schedule on any placement takes less, were layers divisible; infinite where none fits."""
        left = self.devices - self.held.sum(axis=1)
        if (left < -MARGIN * self.devices).any():
            return math.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            shared = np.where(self.timed.sum(axis=1) > 0, self.timed.sum(axis=1) / np.maximum(left, 1e-300), 0.0)
        return max(float(shared.max()), float((self.forward + self.gradient).sum())) * (1 - MARGIN)

    @cached_property
    def least(self) -> float:
        """No schedule on any placement takes less; infinite where none fits."""
        return self.shared if self.shared == math.inf else max(self.shared, self._raised(self.shared, self._impossible))

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
        return [self._timed(self._area(np.full(self.layers, self.way[begin]))) for begin in range(self.layers)]


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
