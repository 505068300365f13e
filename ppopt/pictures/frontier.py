"""Frontiers: the best value at each memory limit, its bound, and the named schedules as marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ppopt.pictures.palette import MARKERS, SERIES
from ppopt.study.frontier import Frontier, scale_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def frontier(frontiers: Sequence[Frontier], ax: Axes, *, named: bool = True) -> Axes:
    """Draw one staircase per placement: what is best at a limit stays so until the next one.

    A filled point is proved optimal; an open one has a bar down to its lower bound. ``named`` schedules stand at the memory
    that they need, those far slower than the slowest point left out.
    """
    first = frontiers[0]
    units = first.pipeline.units
    slowest = 0.0
    for k, line in enumerate(frontiers):
        colour = SERIES[k % len(SERIES)]
        time = line.pipeline.time
        solved = [point for point in line.points if point.result.value is not None]
        x = [float(point.scale) for point in solved]
        y = [float(time(point.result.value or 0)) for point in solved]
        low = [float(time(point.result.lower_bound)) for point in solved]
        slowest = max([slowest, *y])
        chunks = f", {line.pipeline.chunks} chunks" if line.pipeline.chunks > 1 else ""
        ax.step(x, y, where="post", color=colour, label=f"best, {line.pipeline.placement}{chunks}", zorder=3)
        proved = [point.result.reason == "optimal" for point in solved]
        for optimal, face in ((True, colour), (False, "white")):
            some = [i for i, is_proved in enumerate(proved) if is_proved == optimal]
            places = [x[i] for i in some], [y[i] for i in some]
            ax.plot(*places, linestyle="none", marker="o", color=colour, markerfacecolor=face, zorder=4)
        open_ = [i for i, is_proved in enumerate(proved) if not is_proved]
        if open_:
            ax.vlines([x[i] for i in open_], [low[i] for i in open_], [y[i] for i in open_], color=colour, alpha=0.5)
            ax.plot([x[i] for i in open_], [low[i] for i in open_], "_", color=colour, alpha=0.8)
    if named:
        _marks(first, ax, slowest)
    per_device = len(set(first.shares)) > 1
    unit = f" ({units.memory})" if units.memory else ""
    ax.set_xlabel("limits, times those given" if per_device else f"memory limit per device{unit}")
    ax.set_ylabel(f"{first.objective} ({units.time})" if units.time else first.objective)
    ax.grid(alpha=0.3)
    return ax


def _marks(line: Frontier, ax: Axes, slowest: float) -> None:
    """Named schedules, those that stand in one place under one label."""
    places: dict[tuple[float, float], list[str]] = {}
    for row in line.named:
        if row.schedule is not None:
            value = float(row.schedule.pipeline.time(row.schedule.objective(line.objective)))
            if not slowest or value <= 1.15 * slowest:
                where = float(scale_of(row.schedule, line.shares)), value
                chunks = f" v={row.chunks}" if row.chunks > 1 else ""
                places.setdefault(where, []).append(row.name + chunks)
    rightmost = max([float(point.scale) for point in line.points], default=0.0)
    for k, ((x, y), names) in enumerate(sorted(places.items())):
        if rightmost and x > 2 * rightmost:
            continue
        marker = MARKERS[k % len(MARKERS)]
        ax.plot([x], [y], linestyle="none", marker=marker, markersize=6, color="#777777", label=", ".join(names), zorder=2)
