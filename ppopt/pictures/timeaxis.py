"""The time axis of a picture: all of the time, or its first, middle and last parts side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.ticker import MaxNLocator

from ppopt.pictures.shown import end_time
from ppopt.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]
Part: TypeAlias = tuple[float, float]
"""From when to when, in the user's unit."""

ROUNDS = 60
"""A schedule longer than three parts of this many typical operations is drawn in parts."""
WHOLE = 3.3
"""Up to so many parts a schedule is drawn whole."""


@dataclass(frozen=True)
class TimeAxis:
    """Parts ``(from, to)`` of the time, in the user's unit, drawn one after the other with gaps between them."""

    parts: tuple[Part, ...]
    room: float = 0.0
    """How long the axis is at least: charts below each other have as much, so that a time is as wide in each."""

    @property
    def gap(self) -> float:
        """Width of the space between two parts."""
        return 0.015 * sum(b - a for a, b in self.parts)

    @property
    def offsets(self) -> tuple[float, ...]:
        """What is added to a time of each part to get its place on the axis."""
        offsets, at = [], 0.0
        for a, b in self.parts:
            offsets.append(at - a)
            at += b - a + self.gap
        return tuple(offsets)

    @property
    def length(self) -> float:
        """Where the axis ends."""
        return max(self.parts[-1][1] + self.offsets[-1], self.room)

    def clipped(self, start: Floats, end: Floats) -> tuple[npt.NDArray[np.intp], Floats, Floats]:
        """Which intervals are seen, and from where to where on the axis; an interval in two parts is there twice."""
        seen, left, right = [], [], []
        for (a, b), offset in zip(self.parts, self.offsets, strict=True):
            inside = np.flatnonzero((end > a) & (start < b))
            seen.append(inside)
            left.append(np.maximum(start[inside], a) + offset)
            right.append(np.minimum(end[inside], b) + offset)
        return np.concatenate(seen), np.concatenate(left), np.concatenate(right)

    def decorate(self, ax: Axes, unit: str) -> None:
        """Limits, ticks with the true times, and a mark at each break."""
        ax.set_xlim(0, self.length)
        ax.set_xlabel(f"time ({unit})" if unit else "time")
        places, labels = [], []
        for k, ((a, b), offset) in enumerate(zip(self.parts, self.offsets, strict=True)):
            room = (b - a) / self.length
            for tick in MaxNLocator(nbins=max(3, round(12 * room)), steps=[1, 2, 2.5, 5, 10]).tick_values(a, b):
                # a label at an inner edge would run into its neighbour's
                margin = 0.06 * (b - a) if len(self.parts) > 1 else 0.0
                if a + margin * (k > 0) <= tick <= b - margin * (k < len(self.parts) - 1):
                    places.append(tick + offset)
                    labels.append(f"{tick:.10g}")
        ax.set_xticks(places, labels)
        for (_, b), offset in list(zip(self.parts, self.offsets, strict=True))[:-1]:
            ax.axvspan(b + offset, b + offset + self.gap, color="white", zorder=4, linewidth=0)
            ax.text(b + offset + self.gap / 2, 0.5, "⋮", transform=ax.get_xaxis_transform(), ha="center", va="center", zorder=5)


def time_axis(schedules: Sequence[Schedule], full: bool = False, part: Part | None = None) -> TimeAxis:
    """All of the time of these schedules, or three parts of it where single operations could not be seen.

    A part shows about 60 typical operations of a device, and more with many devices, so that the first one sees the whole
    warm-up. With ``full`` all of the time is shown, with ``part`` the time between two.
    """
    longest = max(float(end_time(schedule)) for schedule in schedules)
    if part is not None:
        return TimeAxis((part,))
    length = _part_length(schedules)
    if full or not length or longest <= WHOLE * length:
        return TimeAxis(((0.0, longest or 1.0),))
    middle = (longest - length) / 2
    return TimeAxis(((0.0, length), (middle, middle + length), (longest - length, longest)))


def time_axes(schedules: Sequence[Schedule], full: bool = False, part: Part | None = None) -> list[TimeAxis]:
    """The axes of charts below each other, on which a time is as wide in each; where some are cut, each has its own parts.

    Each cut chart has the parts of its own time, so that none hides where its schedule ends.
    """
    together = time_axis(schedules, full, part)
    if len(together.parts) == 1:
        return [together] * len(schedules)
    length = together.parts[0][1]
    axes = []
    for schedule in schedules:
        end = float(end_time(schedule))
        if end <= WHOLE * length:
            axes.append(TimeAxis(((0.0, end or 1.0),)))
        else:
            middle = (end - length) / 2
            axes.append(TimeAxis(((0.0, length), (middle, middle + length), (end - length, end))))
    room = max(axis.length for axis in axes)
    return [replace(axis, room=room) for axis in axes]


def _part_length(schedules: Sequence[Schedule]) -> float:
    """How long a part is where an axis has several; 0: no operation takes time."""
    positive = [row[row > 0] / schedule.pipeline.ticks.per_unit for schedule in schedules for row in schedule.duration]
    typical = float(np.median(np.concatenate(positive))) if any(map(len, positive)) else 0.0
    return max(ROUNDS, 3 * max(schedule.pipeline.devices for schedule in schedules)) * typical
