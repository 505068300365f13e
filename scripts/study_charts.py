"""The schedules of one point of a study, drawn below its curves: those of the middle of the middle panel, on one time axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import SubFigure
from matplotlib.legend_handler import HandlerTuple

from ppopt.named import Restriction, find
from ppopt.pictures.gantt import gantt, legend_handles
from ppopt.pictures.timeaxis import time_axis
from ppopt.schedule import Schedule
from ppopt.search import solve
from ppopt.study.plan import Instance
from ppopt.study.store import Stored

MOST_DEVICES = 8
"""A point with at most so many is drawn where there is one."""
COLUMNS = 2
ROW, TITLE = 0.14, 0.75
"""Of a chart, in inches: a device, and the title with the numbers of the time axis."""
Chart = tuple[str, Schedule]


def height(charts: Sequence[Chart]) -> float:
    """Inches that these take."""
    each = max(TITLE + 0.6, TITLE + ROW * max((schedule.pipeline.devices for _, schedule in charts), default=0))
    return 0.5 + each * math.ceil(len(charts) / COLUMNS)


def charts_of(
    results: Sequence[Stored],
    instances: Mapping[str, Instance],
    x: Callable[[Stored], float | None],
    line: Callable[[Stored], str],
) -> tuple[float, list[Chart]]:
    """The middle of the x values, and the schedule of each line there; a search is repeated with as much time as it took."""
    found = [(x(result), result) for result in results if result.status == "done" and result.key in instances]
    places = sorted({place for place, _ in found if place is not None})
    small = [
        place
        for place in places
        if all(len(result.outcome.get("work", ())) <= MOST_DEVICES for at, result in found if at == place)
    ]
    if not places:
        return 0.0, []
    chosen = (small or places)[len(small or places) // 2]
    charts = {}
    for place, result in found:
        if place in (chosen, None) and line(result) not in charts:
            schedule = scheduled(result, instances[result.key])
            if schedule is not None:
                charts[line(result)] = schedule
    return chosen, list(charts.items())


def scheduled(result: Stored, instance: Instance) -> Schedule | None:
    """The schedule of a result; ``None``: there is none."""
    task, pipeline = instance.task, instance.pipeline
    assert pipeline is not None
    if task.schedule is None:
        settings = dict(task.settings)
        seconds = min(settings.get("time_limit", 20.0), 5.0 + result.seconds)
        return solve(pipeline, seconds=seconds, workers=1, seed=settings.get("seed", 0), best_cut=False).schedule
    try:
        return find(task.schedule).schedule(pipeline.placements()[0], task.chunks, **dict(task.params))
    except Restriction:
        return None


def draw_charts(charts: Sequence[Chart], title: str, place: SubFigure) -> None:
    """The schedules side by side, two in a row, as wide as they take."""
    schedules = [schedule for _, schedule in charts]
    axis = time_axis(schedules)
    axes = list(place.subplots(math.ceil(len(charts) / COLUMNS), COLUMNS, squeeze=False).flat)
    for ax, (name, schedule) in zip(axes, charts, strict=False):
        gantt(schedule, ax, axis)
        makespan = schedule.pipeline.time(schedule.makespan)
        ax.set_title(f"{name}: {makespan:g}, bubble ratio {schedule.bubble_ratio:.1%}", loc="left", size=10)
    for ax in axes[len(charts) :]:
        ax.set_axis_off()
    place.suptitle(title, size=11)
    handles, labels = legend_handles(schedules)
    look = {"loc": "outside lower center", "ncols": len(labels), "frameon": False, "fontsize": 9}
    place.legend(handles, labels, handler_map={tuple: HandlerTuple(ndivide=None, pad=0)}, **look)
