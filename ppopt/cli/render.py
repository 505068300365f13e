"""What commands print for people on standard output: text as wide as the terminal, and pictures of small schedules."""

from __future__ import annotations

import shutil
import sys

import click

from ppopt.pictures.text import grid
from ppopt.schedule import Schedule

PICTURE = 160
"""Columns of a schedule's picture where the output is no terminal."""
TALL = 32
"""Most devices of a picture."""


def width() -> int | None:
    """Columns of the terminal; ``None``: there is none, and a table is as wide as it needs to be."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def picture(schedule: Schedule) -> tuple[str, bool]:
    """The schedule as a text grid, no wider than the screen, and whether that is all of it."""
    columns = width() or PICTURE
    whole = grid(schedule)
    fits = max(map(len, whole.splitlines())) <= columns
    return (whole, True) if fits else (grid(schedule, columns), False)


def show_grid(schedule: Schedule) -> None:
    """The picture of a small schedule under an empty line; nothing where a line has to lose its middle or lines are too many."""
    least = 2 * max(int((row > 0).sum()) for row in schedule.duration)  # columns: nothing that takes time has less than two
    if schedule.pipeline.devices > TALL or least > (width() or PICTURE):
        return
    text, whole = picture(schedule)
    if whole:
        click.echo(f"\n{text}")
