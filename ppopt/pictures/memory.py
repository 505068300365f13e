"""Memory over time: what each device holds, beside its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppopt.op import Kind
from ppopt.pictures.gantt import points_of, rows
from ppopt.pictures.layout import HELD
from ppopt.pictures.palette import KINDS, LIMIT, STATIC
from ppopt.pictures.timeaxis import Floats, TimeAxis, time_axis
from ppopt.schedule import Schedule, memory_changes, memory_levels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 2000
"""With more steps than this in a part, each bin shows the most that is held in it."""


def memory(schedule: Schedule, ax: Axes, axis: TimeAxis | None = None) -> Axes:
    """Draw what every device holds over time: a row per device, all to the same scale, its limit as a dashed line.

    On the right stand each device's peak and limit. ``axis`` is as for :func:`ppopt.pictures.gantt.gantt`.
    """
    pipeline = schedule.pipeline
    axis = axis or time_axis([schedule])
    axis.decorate(ax, pipeline.units.time)
    rows(ax, pipeline.devices)
    limit = pipeline.amounts.limit
    top = max(*schedule.peak_memory, *([] if limit is None else limit.tolist()), 1)
    for device in range(pipeline.devices):
        base = device + HELD / 2
        times, held = held_over_time(schedule, device)
        static = HELD * float(pipeline.amounts.static[device]) / top
        for (a, b), offset in zip(axis.parts, axis.offsets, strict=True):
            x, amount = _part(times, held, a, b)
            y = base - HELD * amount / top
            ax.fill_between(x + offset, y, base, step="post", color=KINDS[Kind.F], alpha=0.55, linewidth=0)
            if static:
                ax.fill_between([a + offset, b + offset], base - static, base, color=STATIC, linewidth=0)
            if limit is not None:
                level = base - HELD * float(limit[device]) / top
                ax.plot([a + offset, b + offset], [level, level], color=LIMIT, linestyle="--", linewidth=1)
            ax.plot([a + offset, b + offset], [base, base], color="#999999", linewidth=0.5)
    _peaks(schedule, ax)
    return ax


def held_over_time(schedule: Schedule, device: int) -> tuple[Floats, Floats]:
    """Times in the user's unit, ascending, and the integer amount held from each one on, static memory included."""
    if any(map(len, schedule.copies.rows)) or schedule.pipeline.backward_routes:  # its own row does not say it
        ticks, levels = memory_levels(schedule, device)
        return ticks / schedule.pipeline.ticks.per_unit, levels.astype(np.float64)
    claimed, released = memory_changes(schedule.pipeline, schedule.order.rows[device])
    changes = np.stack([claimed, -released], 1).ravel()
    times = np.stack([schedule.start[device], schedule.end[device]], 1).ravel()
    held = np.cumsum(changes) + schedule.pipeline.amounts.static[device]
    return times / schedule.pipeline.ticks.per_unit, held.astype(np.float64)


def _part(times: Floats, held: Floats, a: float, b: float) -> tuple[Floats, Floats]:
    """The steps between ``a`` and ``b``, the state at ``a`` first and that at ``b`` last; many become the most per bin."""
    first, last = np.searchsorted(times, a, side="right"), np.searchsorted(times, b, side="right")
    before = held[first - 1] if first else (held[-1] if len(held) else 0.0)
    x = np.concatenate(([a], times[first:last], [b]))
    y = np.concatenate(([before], held[first:last], [held[last - 1] if last else before]))
    if len(x) <= BINS:
        return x, y
    edges = np.linspace(a, b, BINS + 1)
    place = np.minimum(np.searchsorted(edges, x, side="right") - 1, BINS - 1)
    most = np.full(BINS, -np.inf)
    np.maximum.at(most, place, y)
    at_edge = y[np.maximum(np.searchsorted(x, edges[:-1], side="right") - 1, 0)]
    return edges, np.append(np.maximum(most, at_edge), y[-1])


def _peaks(schedule: Schedule, ax: Axes) -> None:
    pipeline = schedule.pipeline
    limit = pipeline.amounts.limit
    size = min(8.0, points_of(ax)[1] / pipeline.devices / 1.3)
    if size < 4:
        return
    unit = f" {pipeline.units.memory}" if pipeline.units.memory else ""
    for device, peak in enumerate(schedule.peak_memory):
        text = f"{pipeline.amount(peak):.4g}" + ("" if limit is None else f" of {pipeline.amount(int(limit[device])):.4g}") + unit
        ax.text(1.005, device, text, transform=ax.get_yaxis_transform(), size=size, va="center", ha="left")
