"""Frontiers: the best value at each memory limit, its bound, and the named schedules as marks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.patheffects import withStroke

from ppopt.pictures.curves import logarithmic
from ppopt.pictures.palette import SERIES
from ppopt.study.frontier import Frontier
from ppopt.study.limits import scale_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def frontier(frontiers: Sequence[Frontier], ax: Axes, *, named: bool = True) -> Axes:
    """Draw one staircase per placement: what is best at a limit stays so until the next one.

    A filled point is proved optimal; an open one has a bar down to its lower bound. The ``named`` schedules stand as numbers at
    the memory that they need; those far slower, or far larger, than any point are left out.
    """
    first = frontiers[0]
    units = first.pipeline.units
    slowest = 0.0
    for k, line in enumerate(frontiers):
        colour = SERIES[k % len(SERIES)]
        solved = [point for point in line.points if point.result.value is not None]
        x = [float(point.scale) for point in solved]
        y = [float(point.result.value or 0) for point in solved]
        low = [float(point.result.lower_bound) for point in solved]
        slowest = max([slowest, *y])
        chunks = f", {line.pipeline.chunks} chunks" if line.pipeline.chunks > 1 else ""
        offload = line.pipeline.offload
        copies = "" if offload is None else ", no offload" if offload.stages == "none" else ", offload"
        ax.step(x, y, where="post", color=colour, label=f"best, {line.pipeline.placement}{chunks}{copies}", zorder=3)
        proved = [point.result.reason == "optimal" for point in solved]
        for optimal, face in ((True, colour), (False, "white")):
            some = [i for i, is_proved in enumerate(proved) if is_proved == optimal]
            places = [x[i] for i in some], [y[i] for i in some]
            ax.plot(*places, linestyle="none", marker="o", color=colour, markerfacecolor=face, zorder=4)
        open_ = [i for i, is_proved in enumerate(proved) if not is_proved]
        if open_:
            ax.vlines([x[i] for i in open_], [low[i] for i in open_], [y[i] for i in open_], color=colour, alpha=0.5)
            ax.plot([x[i] for i in open_], [low[i] for i in open_], "_", color=colour, alpha=0.8)
    values = [point.result.value for line in frontiers for point in line.points if point.result.value]
    if values and max(values) > 2.5 * min(values):
        logarithmic(ax)
    if named:
        _marks(first, ax, slowest)
    per_device = len(set(first.shares)) > 1
    unit = f" ({units.memory})" if units.memory else ""
    ax.set_xlabel("limits, times those given" if per_device else f"memory limit per device{unit}")
    ax.set_ylabel(f"{first.objective} ({units.time})" if units.time else first.objective)
    ax.grid(alpha=0.3)
    return ax


def _marks(line: Frontier, ax: Axes, slowest: float) -> None:
    """Named schedules as numbers, explained in the legend; those that stand in one place share a number."""
    rightmost = max([float(point.scale) for point in line.points], default=0.0)
    places: dict[tuple[float, float], list[str]] = {}
    for row in line.named:
        if row.schedule is not None:
            x = float(scale_of(row.schedule, line.shares))
            y = float(row.schedule.pipeline.time(row.schedule.objective(line.objective)))
            if x <= 2 * rightmost and y <= 1.15 * slowest:
                places.setdefault((x, y), []).append(row.name + (f" v={row.chunks}" if row.chunks > 1 else ""))
    ordered = sorted(places.items())
    ax.plot([x for (x, _), _ in ordered], [y for (_, y), _ in ordered], linestyle="none", marker=".", color="#777777", zorder=2)
    ax.get_xlim(), ax.get_ylim()  # the limits follow the data only when asked for
    taken: list[tuple[float, float]] = []
    for k, ((x, y), names) in enumerate(ordered, start=1):
        left, up = ax.transData.transform((x, y)) * 72 / ax.figure.dpi
        dx, dy = next(
            (dx, dy)
            for dx in itertools.count(8, 12)
            for dy in (0, -9, 9)
            if not any(abs(left + dx - a) < 11 and abs(up + dy - b) < 8.5 for a, b in taken)
        )
        taken.append((left + dx, up + dy))
        halo = [withStroke(linewidth=2.5, foreground="white")]
        label = ax.annotate(str(k), (x, y), (dx, dy), textcoords="offset points", size=8, color="#333333", zorder=5)
        label.set(ha="center", va="center", path_effects=halo)
        ax.plot([], [], linestyle="none", marker=".", color="#777777", label=f"{k}  {', '.join(names)}")
