"""Whole pictures: several schedules on one time axis, with their memory if wanted, titles and one legend; and saving."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ppopt.op import Kind
from ppopt.pictures.gantt import bars_of, gantt, legend_handles
from ppopt.pictures.layout import check_suffix, figures_of, height_of
from ppopt.pictures.links import names_of
from ppopt.pictures.memory import memory as draw_memory
from ppopt.pictures.palette import KINDS, LIMIT, STATIC
from ppopt.pictures.timeaxis import Part, TimeAxis, time_axes
from ppopt.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE = 0.19
"""Height of a line of text, in inches."""
LEFT, RIGHT, AXIS = 0.75, 0.3, 0.55
"""Least room for the device numbers and the links, the right margin, and the numbers of the time axis, in inches."""
CHARACTER = 0.072
"""Mean width of a character of the titles and the legend, in inches."""


def figure(
    schedules: Sequence[tuple[str, Schedule]],
    memory: bool = False,
    width: float | None = None,
    full: bool = False,
    part: Part | None = None,
) -> Figure:
    """Gantt charts of ``(name, schedule)``, one below the other on one time axis; with ``memory``, what is held below each.

    ``width`` is in inches; by default what the microbatch numbers need, between 8 and 20. A long schedule is shown at its
    beginning, in its middle and at its end; with ``full`` all of it, with ``part`` the time between two.

    Raises:
        ValueError: there is no schedule.
    """
    if not schedules:
        raise ValueError("a picture needs at least one schedule")
    everything = [schedule for _, schedule in schedules]
    axes = time_axes(everything, full, part)
    longest = max((len(name) for schedule in everything for name in names_of(schedule.pipeline)), default=0)
    left, right = max(LEFT, 0.5 + CHARACTER * longest), RIGHT + 0.9 * memory
    width = width or _width(everything, axes, left + right)
    room = width - left - right
    handles, labels = _legend(everything, memory)
    columns = legend_columns(labels, width)
    titles = [_title(name, room) + _figures(schedule, room) for name, schedule in schedules]
    rows = [_height(schedule) for schedule in everything]
    held = [
        row * schedule.pipeline.devices / height_of(schedule.pipeline) for row, schedule in zip(rows, everything, strict=True)
    ]
    blocks = [
        (len(title) + 0.6) * LINE + row + AXIS + memory * (1.4 * LINE + below + AXIS)
        for title, row, below in zip(titles, rows, held, strict=True)
    ]
    height = sum(blocks) + LINE * (1.5 - -len(labels) // columns) + 0.1
    picture = Figure(figsize=(width, height), dpi=100)
    top = height - 0.1
    for (_, schedule), axis, title, row, below, block in zip(schedules, axes, titles, rows, held, blocks, strict=True):
        for k, (line, look) in enumerate(title):
            picture.text(left / width, (top - LINE * (k + 0.5)) / height, line, va="center", parse_math=False, **look)
        at = top - (len(title) + 0.3) * LINE - row
        gantt(schedule, _axes(picture, at, row, left, right), axis)
        if memory:
            at -= AXIS + 1.4 * LINE + below
            picture.text(left / width, (at + below + 0.6 * LINE) / height, "memory", size=9, va="center")
            draw_memory(schedule, _axes(picture, at, below, left, right), axis)
        top -= block
    shades = {tuple: HandlerTuple(ndivide=None, pad=0)}  # a tuple of handles is drawn side by side; the stubs know artists only
    options: dict[str, Any] = {"loc": "lower center", "ncols": columns, "frameon": False, "fontsize": 9, "handler_map": shades}
    picture.legend(handles, labels, **options)  # type: ignore[arg-type]
    return picture


def save(picture: Figure, path: str) -> None:
    """Write a picture as png, svg or pdf, whichever the suffix says.

    Raises:
        ValueError: another suffix.
        OSError: the file cannot be written.
    """
    check_suffix(path)
    picture.savefig(path, dpi=150)


def _title(name: str, room: float) -> list[tuple[str, dict[str, Any]]]:
    """Lines of the title in ``room`` inches, and how they look."""
    return [(line, {"weight": "bold", "size": 11}) for line in textwrap.wrap(name, max(20, int(0.75 * room / CHARACTER))) or [""]]


def _figures(schedule: Schedule, room: float) -> list[tuple[str, dict[str, Any]]]:
    """The figures of a schedule in lines of ``room`` inches, broken at their dots only; and how they look."""
    text = figures_of(schedule)
    glued = text.replace(" ", "\N{NO-BREAK SPACE}").replace("\N{NO-BREAK SPACE}·\N{NO-BREAK SPACE}", "\N{NO-BREAK SPACE}· ")
    return [(line, {"size": 9}) for line in textwrap.wrap(glued, max(20, int(room / CHARACTER)))]


def legend_columns(labels: Sequence[str], width: float) -> int:
    """The most columns of a legend with these labels that fit into ``width`` inches."""
    for columns in range(len(labels), 1, -1):
        rows, more = divmod(len(labels), columns)  # the first columns have one more, where they cannot be equal
        ends = np.cumsum([0, *(rows + (column < more) for column in range(columns))]).tolist()
        widest = [max(map(len, labels[at:end])) for at, end in pairwise(ends)]
        if sum(CHARACTER * length + 0.65 for length in widest) <= width:
            return columns
    return 1


def _axes(picture: Figure, bottom: float, height: float, left: float, right: float) -> Axes:
    """Axes at ``bottom`` inches from below, ``height`` inches high, between two margins."""
    width, full = picture.get_size_inches()
    return picture.add_axes((left / width, bottom / full, (width - left - right) / width, height / full))


def _height(schedule: Schedule) -> float:
    """Inches for the rows: comfortable for a few devices, as little as can be read for many."""
    rows = height_of(schedule.pipeline)
    return min(rows * (0.32 if rows <= 10 else 0.24 if rows <= 20 else 0.19), 16.0)


def _width(schedules: Sequence[Schedule], axes: Sequence[TimeAxis], margins: float) -> float:
    """Inches that let most microbatch numbers fit in readable type, between margins given in inches."""
    needed = 8.0
    for schedule, axis in zip(schedules, axes, strict=True):
        bars = bars_of(schedule)
        if len(bars.start):
            digits = np.floor(np.log10(np.maximum(bars.microbatch, 1))) + 1
            per_time = float(np.quantile((digits * 4.5 * 0.64 + 3) / (bars.end - bars.start), 0.9))
            needed = max(needed, per_time * axis.length / 72 + margins)
    return min(needed, 20.0)


def _legend(schedules: Sequence[Schedule], memory: bool) -> tuple[list[tuple[Patch | Line2D, ...]], list[str]]:
    handles, labels = legend_handles(schedules)
    full: list[tuple[Patch | Line2D, ...]] = [*handles]
    if memory:
        full.append((Patch(facecolor=KINDS[Kind.F], alpha=0.55),))
        labels = [*labels, "held"]
        if any(schedule.pipeline.amounts.static.any() for schedule in schedules):
            full.append((Patch(facecolor=STATIC),))
            labels = [*labels, "static"]
        if any(schedule.pipeline.amounts.limit is not None for schedule in schedules):
            full.append((Line2D([], [], color=LIMIT, linestyle="--"),))
            labels = [*labels, "limit"]
    return full, labels
