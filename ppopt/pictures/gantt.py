"""Gantt charts: who computes what when, with the idle time visible, and which transfers hold the links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from ppopt.op import Kind, Send
from ppopt.pictures.layout import APART, BAR, height_of, label_of, shade_of
from ppopt.pictures.links import names_of
from ppopt.pictures.palette import CARRIED, IDLE, MARGIN, MEANING, RGB, SENDS, ink, rgb, shades
from ppopt.pictures.timeaxis import Floats, TimeAxis, time_axis
from ppopt.pipeline import IntArray, kind_of
from ppopt.schedule import Schedule, durations, halves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NUMBERS = 4000
MOST_BARS = 60_000
"""With more bars than this a row is drawn as a band: each of its pixels the mean colour of what runs there."""
BINS = 3000
FONT = 0.64, 0.78
"""Width and height of a digit, in parts of its font size."""
SMALLEST = 4.5
"""Smallest font size of the numbers, in points."""


class Bars(NamedTuple):
    """One coloured box each; a pair is two, one above the other. Arrays of equal length, rows ascending."""

    row: IntArray
    """A device, or ``devices`` + a link."""
    start: Floats
    end: Floats
    colour: RGB
    kind: IntArray
    microbatch: IntArray
    half: IntArray
    """0: the whole height; 1: its upper half (a pair's forward); 2: its lower half."""

    def part(self, first: int, last: int) -> Bars:
        """The boxes from ``first`` up to ``last``."""
        return Bars(*(column[first:last] for column in self))  # type: ignore[arg-type]


def gantt(schedule: Schedule, ax: Axes, axis: TimeAxis | None = None) -> Axes:
    """Draw a schedule: a row per device, a bar per operation in the colour of its kind and the shade of its stage.

    Where transfers hold links, a row per link follows, with a bar for the time that each transfer holds it. Microbatch numbers
    stand in the bars where they fit. ``axis`` is the part of the time to show (several schedules can share one); without it, all
    of it or, for a long schedule, its beginning, middle and end.
    """
    pipeline = schedule.pipeline
    axis = axis or time_axis([schedule])
    axis.decorate(ax, pipeline.units.time)
    links = names_of(pipeline)
    rows(ax, pipeline.devices, links)
    for (a, b), offset in zip(axis.parts, axis.offsets, strict=True):
        ax.axvspan(a + offset, b + offset, color=IDLE, linewidth=0, zorder=0)
    _margins(ax, schedule, axis)
    bars = bars_of(schedule)
    seen, left, right = axis.clipped(bars.start, bars.end)
    if len(seen) > MOST_BARS:
        _bands(ax, (0, pipeline.devices), bars, axis)
        if links:
            _bands(ax, (pipeline.devices, pipeline.devices + len(links)), bars, axis)
        return ax
    width, height = points_of(ax)
    middle = bars.row[seen] + APART * (bars.row[seen] >= pipeline.devices)
    boxes(ax, bars, middle, seen, left, right, width / axis.length)
    numbers(ax, bars, middle, seen, left, right, (width / axis.length, height / height_of(pipeline)))
    return ax


def _margins(ax: Axes, schedule: Schedule, axis: TimeAxis) -> None:
    """What devices do before their first operation and after their last one, hatched."""
    if not schedule.margins:
        return
    device, since, until = np.array(schedule.margins, dtype=np.int64).T
    per_unit = schedule.pipeline.ticks.per_unit
    seen, left, right = axis.clipped(since / per_unit, until / per_unit)
    ax.barh(device[seen], right - left, BAR, left, color="white", edgecolor=MARGIN, hatch="////", linewidth=0.6, zorder=2)


def bars_of(schedule: Schedule) -> Bars:
    """The boxes of a schedule, in the user's time; operations that take no time have none."""
    pipeline = schedule.pipeline
    rank, count = shade_of(pipeline)
    table = np.array([shades(kind, count) for kind in Kind])
    columns: list[list[IntArray | RGB]] = []
    for device, numbers in enumerate(schedule.order.rows):
        start, end = (times[device] / pipeline.ticks.per_unit for times in (schedule.start, schedule.end))
        first, second = halves(pipeline.index, numbers)
        paired = second >= 0
        for ops, half in ((first, np.where(paired, 1, 0)), (second, np.full(len(second), 2))):
            shown = (ops >= 0) & (end > start)
            family, microbatch = np.divmod(ops[shown], pipeline.microbatches)
            row, stage = np.divmod(family, pipeline.stages)
            kind = kind_of(pipeline.index, row)
            colour = table[kind, rank[pipeline.route_by_microbatch[microbatch], stage]]
            where = np.full(len(kind), device)
            columns.append([where, start[shown], end[shown], colour, kind, microbatch, half[shown]])
    below = enumerate((*zip(*schedule.transfers, strict=True), *zip(*schedule.copies, strict=True)))
    for link, (numbers, starts) in below:
        family, microbatch = np.divmod(numbers, pipeline.microbatches)
        kind = family // pipeline.stages
        colour = np.stack([rgb(SENDS[send]) for send in Send])[kind - Send.SEND_F]
        where, whole = np.full(len(kind), pipeline.devices + link), np.zeros(len(kind), dtype=np.int64)
        start, end = (times / pipeline.ticks.per_unit for times in (starts, starts + durations(pipeline, numbers)))
        columns.append([where, start, end, colour, kind, microbatch, whole])
    return Bars(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def legend_handles(schedules: Iterable[Schedule]) -> tuple[list[tuple[Patch, ...]], list[str]]:
    """Handles and labels of a legend: for each kind that is run its shades, what is on links, and the idle grey."""
    schedules = tuple(schedules)
    kinds, sends, count = set(), set(), 1
    for schedule in schedules:
        index = schedule.pipeline.index
        count = max(count, shade_of(schedule.pipeline)[1])
        for numbers in schedule.order.rows:
            for ops in halves(index, numbers):
                kinds |= set(kind_of(index, ops[ops >= 0] // (index.stages * index.microbatches)).tolist())
        for numbers in (*schedule.transfers.rows, *schedule.copies.rows):
            sends |= set((numbers // (index.stages * index.microbatches)).tolist())
    shown = min(count, 4)
    handles = [tuple(Patch(facecolor=tuple(c)) for c in shades(Kind(kind), shown)) for kind in sorted(kinds)]
    labels = [MEANING[Kind(kind)] for kind in sorted(kinds)]
    handles += [(Patch(facecolor=SENDS[Send(send)]),) for send in sorted(sends)]
    labels += [CARRIED[Send(send)] for send in sorted(sends)]
    if any(schedule.margins for schedule in schedules):
        handles.append((Patch(facecolor="white", edgecolor=MARGIN, hatch="////"),))
        labels.append("before the first and after the last operation")
    handles.append((Patch(facecolor=IDLE, edgecolor="#bbbbbb"),))
    labels.append("idle")
    if count > 1:
        handles.append(tuple(Patch(facecolor=str(grey)) for grey in np.linspace(0.3, 0.75, shown)))
        labels.append("first to last stage of a device")
    return handles, labels


def rows(ax: Axes, devices: int, links: Sequence[str] = ()) -> None:
    """A row per device from top to bottom, then one per link, with as many device numbers and links as there is room for."""
    height = devices + (APART + len(links) if links else 0)
    ax.set_ylim(height - 0.5, -0.5)
    room = max(points_of(ax)[1] / 9, 2)
    step = 1
    while height / step > room:
        step *= 2
    places: list[float] = list(range(0, devices, step))
    labels = [str(device) for device in places]
    places += [devices + APART + link for link in range(0, len(links), step)]
    ax.set_yticks(places, [*labels, *links[::step]])
    ax.set_ylabel(label_of(links))
    if links:
        ax.axhspan(devices - 0.5, devices + APART - 0.5, color="white", linewidth=0, zorder=1)
    ax.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)


def points_of(ax: Axes) -> tuple[float, float]:
    """Width and height of the plot, in points.

    Raises:
        ValueError: the axes belong to no figure.
    """
    box = ax.get_position()
    figure = ax.get_figure(root=True)
    if figure is None:
        raise ValueError("the axes belong to no figure")
    width, height = figure.get_size_inches()
    return box.width * width * 72, box.height * height * 72


def _edges(half: IntArray) -> tuple[Floats, Floats]:
    """Top and bottom of boxes, relative to their row."""
    return np.where(half == 2, 0.0, -BAR / 2), np.where(half == 1, 0.0, BAR / 2)


def boxes(ax: Axes, bars: Bars, middle: Floats, seen: IntArray, left: Floats, right: Floats, points_per_time: float) -> None:
    """The boxes that are ``seen``, from ``left`` to ``right`` around ``middle``."""
    top, bottom = _edges(bars.half[seen])
    y0, y1 = middle + top, middle + bottom
    corners = np.stack([np.stack([left, y0], 1), np.stack([right, y0], 1), np.stack([right, y1], 1), np.stack([left, y1], 1)], 1)
    width = float(np.median(right - left)) * points_per_time if len(seen) else 0.0
    ax.add_collection(
        PolyCollection(
            list(corners),
            facecolors=bars.colour[seen],
            edgecolors="white" if width > 3 else "none",
            linewidths=min(0.6, width / 10),
            rasterized=len(seen) > 10_000,
            zorder=2,
        )
    )


def numbers(
    ax: Axes, bars: Bars, middle: Floats, seen: IntArray, left: Floats, right: Floats, points_per_unit: tuple[float, float]
) -> None:
    """Microbatch numbers in one size, for those kinds where nearly all of them fit."""
    number, half = bars.microbatch[seen], bars.half[seen]
    digits = np.floor(np.log10(np.maximum(number, 1))) + 1
    room = (right - left) * points_per_unit[0] - 2.5
    height = np.where(half == 0, BAR, BAR / 2) * points_per_unit[1] - 0.5
    largest = np.minimum(room / (digits * FONT[0]), height / FONT[1])
    kind = bars.kind[seen]
    typical = {k: float(np.quantile(largest[kind == k], 0.1)) for k in np.unique(kind).tolist()}
    readable = [k for k, size in typical.items() if size >= SMALLEST]
    size = min([9.0, *(typical[k] for k in readable)])
    fits = np.flatnonzero((largest >= size) & np.isin(kind, readable))
    if len(fits) > MOST_NUMBERS:
        return
    top, bottom = _edges(half)
    y = middle + (top + bottom) / 2
    for i in fits.tolist():
        ax.text(
            (left[i] + right[i]) / 2,
            y[i],
            str(number[i]),
            size=size,
            color=ink(bars.colour[seen[i]]),
            ha="center",
            va="center_baseline",
            clip_on=True,
            zorder=3,
        )


def _bands(ax: Axes, part: tuple[int, int], bars: Bars, axis: TimeAxis) -> None:
    """Each row from the first of ``part`` up to its last as a strip of pixels in the mean colour of their time.

    That is exact, whatever the number of operations.
    """
    for (a, b), offset in zip(axis.parts, axis.offsets, strict=True):
        edges = np.linspace(a, b, max(1, round(BINS * (b - a) / axis.length)) + 1)
        first, last = part
        places = np.searchsorted(bars.row, np.arange(first, last + 1)).tolist()
        image = np.stack([_mean_colour(bars.part(i, j), edges) for i, j in pairwise(places)])
        top = (first + APART if first else 0) - 0.5
        extent = (a + offset, b + offset, top + last - first, top)
        ax.imshow(image, extent=extent, aspect="auto", interpolation="nearest", zorder=2)


def _mean_colour(bars: Bars, edges: Floats) -> RGB:
    """``[bin, 3]``: what a device's operations and its idle time look like on average between each two edges."""
    length = np.diff(edges)
    mean = np.zeros((len(length), 3))
    busy = np.zeros(len(length))
    for half, share in ((0, 1.0), (1, 0.5), (2, 0.5)):
        some = np.flatnonzero(bars.half == half)
        if len(some):
            knots = np.stack([bars.start[some], bars.end[some]], 1).ravel()
            for channel in range(4):
                weight = bars.colour[some, channel] if channel < 3 else np.ones(len(some))
                amounts = np.stack([np.zeros(len(some)), (bars.end - bars.start)[some] * weight * share], 1).ravel()
                amount = np.diff(np.interp(edges, knots, np.cumsum(amounts))) / length
                if channel < 3:
                    mean[:, channel] += amount
                else:
                    busy += amount
    return np.clip(mean + (1 - busy)[:, None] * rgb(IDLE), 0, 1)
