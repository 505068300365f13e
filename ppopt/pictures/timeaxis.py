"""The time axis of a picture: all of the time, or its first, middle and last parts side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from matplotlib.ticker import MaxNLocator

from ppopt.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]

ROUNDS = 60
"""A schedule longer than three parts of this many typical operations is drawn in parts."""


@dataclass(frozen=True)
class TimeAxis:
    """Parts ``(from, to)`` of the time, in the user's unit, drawn one after the other with gaps between them."""

    parts: tuple[tuple[float, float], ...]

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
        return self.parts[-1][1] + self.offsets[-1]

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


def time_axis(schedules: Sequence[Schedule]) -> TimeAxis:
    """All of the time of these schedules, or three parts of it where single operations could not be seen.

    A part shows about 60 typical operations of a device, and more with many devices, so that the first one sees the whole
    warm-up.
    """
    longest = max(float(end_time(schedule)) for schedule in schedules)
    positive = [row[row > 0] / schedule.pipeline.ticks.per_unit for schedule in schedules for row in schedule.duration]
    typical = float(np.median(np.concatenate(positive))) if any(map(len, positive)) else 0.0
    part = max(ROUNDS, 3 * max(schedule.pipeline.devices for schedule in schedules)) * typical
    if not part or longest <= 3.3 * part:
        return TimeAxis(((0.0, longest or 1.0),))
    middle = (longest - part) / 2
    return TimeAxis(((0.0, part), (middle, middle + part), (longest - part, longest)))


def end_time(schedule: Schedule) -> float:
    """When the last device ends, in the user's unit."""
    return float(schedule.pipeline.time(max(span[1] for span in schedule.spans if span)))
