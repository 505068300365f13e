"""Schedules that are drawn."""

from matplotlib.figure import Figure

from ppopt.named import find
from ppopt.pictures.gantt import gantt
from ppopt.pictures.timeaxis import TimeAxis
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule


def named(name: str, devices: int, microbatches: int, /, chunks: int | None = None, **fields: object) -> Schedule:
    return find(name).schedule(Pipeline(devices, microbatches, **fields), chunks)  # type: ignore[arg-type]


def cells(text: str) -> list[list[str]]:
    """The cells of each device's row."""
    return [line.split(": ")[1].split() for line in text.splitlines() if ": " in line and line.strip().startswith("device")]


def drawn(schedule: Schedule, axis: TimeAxis | None = None, size: tuple[float, float] = (12, 3)):  # type: ignore[no-untyped-def]
    picture = Figure(figsize=size)
    ax = picture.subplots()
    assert gantt(schedule, ax, axis) is ax
    picture.canvas.draw()
    return picture, ax
