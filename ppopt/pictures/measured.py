"""Pictures of real runs: by themselves, or with their plan above them, device by device, on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from ppopt.files import FileError, write_text
from ppopt.op import Kind
from ppopt.pictures.figure import AXIS, LEFT, LINE, RIGHT, figure, legend_columns, save
from ppopt.pictures.gantt import MOST_BARS, bars_of, boxes, legend_handles, numbers, points_of
from ppopt.pictures.layout import PAGE, PICTURES, check_suffix, suffix_of
from ppopt.pictures.palette import IDLE, KINDS, rgb
from ppopt.pictures.plot import part_of
from ppopt.pictures.shown import Shown
from ppopt.pictures.timeaxis import Floats, Part, TimeAxis, time_axis
from ppopt.schedule import NO_TRANSFERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppopt.runs import Run
    from ppopt.runs.beside import Beside, Figures
    from ppopt.schedule import Schedule

PITCH = 2.4
"""From a device to the next one, in lanes; two lanes, and room between."""
FADED = 0.45
"""How much white the plan's colours get."""
DEVIATION = 1.5
"""Height of the chart of deviations, in inches."""
PAIRED = "#7a8b99"


def draw(
    run: Run,
    measured: Schedule,
    found: Beside | None,
    path: str,
    *,
    memory: bool = False,
    width: float | None = None,
    full: bool = False,
    begin: float | None = None,
    end: float | None = None,
) -> None:
    """Draw a run, beside its plan where ``found`` has one, as png, svg, pdf or html by the suffix of ``path``.

    ``memory``, ``width``, ``full``, ``begin`` and ``end``: as :func:`~ppopt.pictures.plot.plot` has them.

    Raises:
        ValueError: another suffix.
        Undrawable: there is no time between ``begin`` and ``end``.
        FileError: the picture cannot be written.
        NoPage: a page is wanted, and Bokeh is not installed.
    """
    html = check_suffix(path, (*PICTURES, PAGE)) == PAGE
    name = "" if found is None else found.plan.pipeline.name
    title = f"{name}{': ' * bool(name)}step {run.step} of {run.format}"
    several = [*([] if found is None else [Shown(f"{name}{': ' * bool(name)}plan", found.plan)]), Shown(title, measured)]
    part = part_of(several, begin, end)
    if html:
        from ppopt.pictures.page.document import page

        write_text(path, page(several, memory=memory, width=width, part=part, title=title))
        return
    try:
        save(picture_of(measured, title, found, memory=memory, width=width, full=full, part=part), path)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None


def picture_of(
    measured: Schedule,
    title: str,
    found: Beside | None,
    *,
    memory: bool = False,
    width: float | None = None,
    full: bool = False,
    part: Part | None = None,
) -> Figure:
    """A run; with ``found``, beside its plan: the plan pale above it, and below how much longer operations took.

    ``memory``: what each device holds too, then plan and run have a chart each. So they have with very many operations.
    """
    if found is None:
        return figure([(title, measured)], memory=memory, width=width, full=full, part=part)
    both = [("plan", found.plan), (title, measured)]
    count = sum(len(row) for _, schedule in both for row in schedule.order.rows)
    if memory or count > MOST_BARS:
        return figure(both, memory=memory, width=width, full=full, part=part)
    return _overlaid(found, title, width, time_axis((found.plan, found.measured), full, part))


def _overlaid(found: Beside, title: str, width: float | None, axis: TimeAxis) -> Figure:
    schedules = (replace(found.plan, transfers=NO_TRANSFERS, copies=NO_TRANSFERS), found.measured)  # links have no rows here
    devices = found.measured.pipeline.devices
    width = width or min(20.0, max(8.0, 0.16 * max(map(len, found.measured.order.rows)) + LEFT + RIGHT))
    per_lane = 0.26 if devices <= 10 else 0.2 if devices <= 20 else 0.14
    lanes = min(PITCH * devices * per_lane, 18.0)
    handles, labels = legend_handles(schedules)
    handles = [*handles, (Patch(facecolor=_faded(KINDS[Kind.F])),)]
    labels = [*labels, "pale, above: planned"]
    columns = legend_columns(labels, width)
    rows = -(-len(labels) // columns)
    height = 4.2 * LINE + lanes + AXIS + 1.6 * LINE + DEVIATION + AXIS + LINE * (rows + 0.5)
    picture = Figure(figsize=(width, height), dpi=100)
    for k, line in enumerate((title, f"plan: {_short(found.plan)}", f"measured: {_short(found.measured)}")):
        look = {"weight": "bold", "size": 11} if k == 0 else {"size": 9}
        picture.text(LEFT / width, 1 - LINE * (k + 0.7) / height, line, va="center", **look)
    bottom = height - 4.2 * LINE - lanes
    inner = (width - LEFT - RIGHT) / width
    _lanes(picture.add_axes((LEFT / width, bottom / height, inner, lanes / height)), schedules, axis)
    below = bottom - AXIS - 1.6 * LINE - DEVIATION
    text = "how much longer operations took than planned (medians)"
    picture.text(LEFT / width, (below + DEVIATION + 0.6 * LINE) / height, text, size=9, va="center")
    _deviations(picture.add_axes((LEFT / width, below / height, inner, DEVIATION / height)), found.figures(), devices)
    shades = {tuple: HandlerTuple(ndivide=None, pad=0)}
    options: dict[str, Any] = {"loc": "lower center", "ncols": columns, "frameon": False, "fontsize": 9, "handler_map": shades}
    picture.legend(handles, labels, **options)  # type: ignore[arg-type]
    return picture


def _short(schedule: Schedule) -> str:
    """Length and bubble ratio."""
    pipeline = schedule.pipeline
    time = suffix_of(pipeline.units.time)
    return f"makespan {pipeline.time(schedule.makespan):.6g}{time} · bubble ratio {schedule.bubble_ratio:.1%}"


def _lanes(ax: Axes, schedules: Sequence[Schedule], axis: TimeAxis) -> None:
    """Two lanes for each device, the plan above the run."""
    devices = schedules[0].pipeline.devices
    axis.decorate(ax, schedules[0].pipeline.units.time)
    ax.set_ylim(PITCH * devices - 0.7, -0.7)
    room = max(points_of(ax)[1] / 9, 2)
    step = 1
    while devices / step > room:
        step *= 2
    places = list(range(0, devices, step))
    ax.set_yticks([PITCH * device + 0.5 for device in places], [str(device) for device in places])
    ax.set_ylabel("device")
    ax.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    for (a, b), offset in zip(axis.parts, axis.offsets, strict=True):
        for device in range(devices):
            middle = PITCH * device
            ax.fill_between([a + offset, b + offset], middle - 0.47, middle + 1.47, color=IDLE, linewidth=0, zorder=0)
    width, height = points_of(ax)
    points = width / axis.length, height / (PITCH * devices)
    for lane, schedule in enumerate(schedules):
        bars = bars_of(schedule)
        shift = min(int(row.min()) for row in schedule.start if len(row)) / schedule.pipeline.ticks.per_unit
        bars = bars._replace(start=bars.start - shift, end=bars.end - shift)
        if lane == 0:
            bars = bars._replace(colour=bars.colour * (1 - FADED) + FADED)
        seen, left, right = axis.clipped(bars.start, bars.end)
        middle_of: Floats = PITCH * bars.row[seen].astype(np.float64) + lane
        boxes(ax, bars, middle_of, seen, left, right, points[0])
        numbers(ax, bars, middle_of, seen, left, right, points)


def _deviations(ax: Axes, figures: Sequence[Figures], devices: int) -> None:
    """By device and kind, how much longer than planned."""
    kinds = list(dict.fromkeys(each.kind for each in figures))
    each_width = 0.8 / len(kinds)
    for k, kind in enumerate(kinds):
        some = [each for each in figures if each.kind == kind and each.deviation is not None]
        places = [each.device + (k - (len(kinds) - 1) / 2) * each_width for each in some]
        colour = KINDS[Kind[kind]] if kind in Kind.__members__ else PAIRED
        ax.bar(places, [each.deviation or 0.0 for each in some], each_width * 0.9, color=colour)
    ax.axhline(0, color="#555555", linewidth=0.8)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_xlim(-0.6, devices - 0.4)
    step = max(1, devices // 16)
    ax.set_xticks(range(0, devices, step))
    ax.set_xlabel("device")
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _faded(colour: str) -> tuple[float, float, float]:
    red, green, blue = (rgb(colour) * (1 - FADED) + FADED).tolist()
    return red, green, blue
