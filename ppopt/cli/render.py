"""What commands print for people: rich tables on standard output, notes on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ppopt.named import Row
from ppopt.pictures.text import grid
from ppopt.pipeline import Pipeline, in_words
from ppopt.schedule import Schedule

PICTURE, WIDE = 160, 200
"""Columns of a schedule's picture and of a table where the output is no terminal."""
TALL = 32
"""Most devices of a picture."""
EQUAL_WORK = (
    "the model's costs are uneven, and this row assumes that each device has the same work here as on the model's placement; "
    "a network would be cut differently here"
)
"""What a dagger after a placement means."""


def console() -> Console:
    """Standard output: as wide as the terminal, and wide enough for every column where it is none."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDE, soft_wrap=False)


def show(table: Table) -> None:
    """Print a table."""
    console().print(table)


def new_table(title: str | None, left: Sequence[str], right: Sequence[str], last: Sequence[str] = ()) -> Table:
    """A table without rows: columns of text, of figures, and of text again."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right", overflow="fold")
    for name in last:
        table.add_column(name, overflow="fold")
    return table


def heading(pipeline: Pipeline) -> str:
    """A pipeline in a line."""
    details = f", {pipeline.chunks} chunks" if pipeline.chunks > 1 else ""
    name = f"{pipeline.name}: " if pipeline.name else ""
    if isinstance(pipeline.recompute, tuple):
        several = "s" * (len(pipeline.recompute) > 1)
        details += f", recompute in stage{several} {in_words(pipeline.recompute)}"
    elif pipeline.recompute != "none":
        details += f", recompute {pipeline.recompute}"
    return f"{name}{sizes(pipeline)}, {pipeline.placement}{details}"


def sizes(pipeline: Pipeline) -> str:
    """How many devices and microbatches a pipeline has."""
    devices, microbatches = pipeline.devices, pipeline.microbatches
    return f"{devices} device{'s' * (devices > 1)}, {microbatches} microbatch{'es' * (microbatches > 1)}"


def number(value: int | float) -> str:
    """A figure with at most six significant digits after the point's side that matters; whole numbers as they are."""
    return str(value) if isinstance(value, int) else f"{value:.6g}" if abs(value) < 1e6 else f"{value:.1f}"


def percent(ratio: float) -> str:
    """A ratio in percent."""
    return f"{100 * ratio:.1f} %"


def unit(name: str, label: str) -> str:
    """The head of a column with its unit."""
    return f"{name} [{label}]" if label else name


def figures(schedule: Schedule) -> list[str]:
    """Makespan, device span, bubble ratio, span bubble ratio, largest peak memory."""
    pipeline = schedule.pipeline
    return [
        number(pipeline.time(schedule.makespan)),
        number(pipeline.time(schedule.device_span)),
        percent(schedule.bubble_ratio),
        percent(schedule.span_bubble_ratio),
        number(pipeline.amount(max(schedule.peak_memory))),
    ]


def figure_names(pipeline: Pipeline) -> list[str]:
    """The heads of :func:`figures`."""
    time, memory = (label.replace("[", "(").replace("]", ")") for label in (pipeline.units.time, pipeline.units.memory))
    return [
        unit("makespan", time).replace("[", r"\["),
        unit("device span", time).replace("[", r"\["),
        "bubble ratio",
        "span bubble ratio",
        unit("peak memory", memory).replace("[", r"\["),
    ]


def named_table(pipeline: Pipeline, rows: Iterable[Row], title: str | None, marked: str | None = None) -> Table:
    """The named schedules that exist on this hardware, fastest first; ``marked`` is the one that the model stands for.

    A dagger after the placement marks a row that assumes equal work (:data:`EQUAL_WORK`).
    """
    table = new_table(title, ["schedule", "placement", "chunks"], figure_names(pipeline), ["memory"])
    applying = [row for row in rows if row.schedule is not None]
    for row in sorted(applying, key=_makespan):
        assert row.schedule is not None
        name = f"{row.label} *" if is_marked(pipeline, row, marked) else row.label
        placement = f"{row.placement} †" if row.assumes_equal_work else row.placement
        within = "" if row.within_memory else "over the limit"
        table.add_row(name, placement, str(row.chunks), *figures(row.schedule), within)
    return table


def is_marked(pipeline: Pipeline, row: Row, marked: str | None) -> bool:
    """Whether a row has this name and, as the schedule that a model stands for has, the placement of the model."""
    return row.name == marked and row.schedule is not None and row.schedule.pipeline.routes == pipeline.routes


def _makespan(row: Row) -> tuple[float, str]:
    assert row.makespan is not None
    return row.makespan, row.name


def show_named(pipeline: Pipeline, rows: Sequence[Row], title: str, marked: str | None = None) -> None:
    """The table of named schedules, and below it those that do not apply, with the reason."""
    show(named_table(pipeline, rows, title, marked))
    out = console()
    if any(is_marked(pipeline, row, marked) for row in rows):
        out.print(f"* the schedule that the model stands for ({marked})", markup=False)
    if any(row.assumes_equal_work for row in rows):
        out.print(f"† {EQUAL_WORK}", markup=False)
    excluded = [row for row in rows if row.excluded is not None]
    if excluded:
        out.print("Not applicable:", markup=False)
    for row in excluded:
        out.print(f"  {row.excluded}", markup=False, soft_wrap=True)


def picture(schedule: Schedule) -> tuple[str, bool]:
    """The schedule as a text grid, no wider than the screen, and whether that is all of it."""
    width = console().width if sys.stdout.isatty() else PICTURE
    whole = grid(schedule)
    fits = max(map(len, whole.splitlines())) <= width
    return (whole, True) if fits else (grid(schedule, width), False)


def show_grid(schedule: Schedule) -> None:
    """The picture of a small schedule under an empty line; nothing where a line has to lose its middle or lines are too many."""
    text, whole = picture(schedule)
    if whole and schedule.pipeline.devices <= TALL:
        console().print(f"\n{text}", markup=False, soft_wrap=True)
