"""What commands print for people on standard output: text as wide as the terminal, and pictures of small schedules."""

from __future__ import annotations

import os
import shutil
import sys

import click

from ppopt.pictures.text import Grid
from ppopt.schedule import Schedule
from ppopt.text import Table, rendered, wrapped

PICTURE = 160
"""Columns of a schedule's picture where the output is no terminal and ``COLUMNS`` is not set."""
TALL = 32
"""Most devices of a picture."""


def width() -> int | None:
    """Columns of the terminal, or what ``COLUMNS`` says; ``None``: there is neither, and a table is as wide as it needs to be."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isascii() and given.isdigit() and int(given) else None


def styled() -> bool:
    """Whether rows may be dimmed: on a terminal that can, unless ``NO_COLOR`` is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def shown(table: Table) -> str:
    """A table as the output takes it."""
    return rendered(table, width(), styled=styled())


def say(text: str) -> None:
    """Print a text for people: its sentences in lines that fit the terminal, or ``COLUMNS``; its tables as they are."""
    columns = width()
    click.echo("\n".join(line if "  " in line.strip() else wrapped(line, columns) for line in text.split("\n")))


def picture(schedule: Schedule) -> tuple[str, bool]:
    """The schedule as a text grid, no wider than the screen, and whether that is all of it.

    Where it is too wide, times are rounded to the shortest operation, before its middle is left out.
    """
    columns = width() or PICTURE
    for coarse in (False, True):
        drawn = Grid(schedule, coarse=coarse)
        if drawn.width <= columns:
            return drawn.text(), True
    return drawn.text(columns), False


def show_grid(schedule: Schedule) -> None:
    """The picture of a small schedule under an empty line; nothing where a line has to lose its middle or lines are too many."""
    least = 2 * max(int((row > 0).sum()) for row in schedule.duration)  # columns: nothing that takes time has less than two
    if schedule.pipeline.devices > TALL or least > (width() or PICTURE):
        return
    text, whole = picture(schedule)
    if whole:
        click.echo(f"\n{text}")
