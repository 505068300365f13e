"""Results, rows and files drawn on one time axis."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ppopt.files import FileError, Model
from ppopt.files.exported import schedule_in
from ppopt.named import Row
from ppopt.named.verified import verified
from ppopt.pictures.figure import check_suffix, figure, save
from ppopt.schedule import Schedule
from ppopt.search.result import Result

Drawn: TypeAlias = Result | Row | Schedule | str
"""What can be drawn: what was solved, a row of a comparison, a schedule, or the path of a result (JSON) or an order (CSV)."""


def plot(
    drawn: Drawn | Sequence[Drawn],
    path: str,
    *,
    memory: bool = False,
    width: float | None = None,
    model: Model | None = None,
    change: Callable[[Model], Model] = lambda model: model,
) -> None:
    """Draw one or several schedules, one below the other on one time axis, as png, svg or pdf by the suffix of ``path``.

    ``memory``: with what each device holds. ``width`` is in inches, by default as wide as the numbers need. Files have a result's
    own model, or unit costs, unless ``model`` is given; ``change`` is made to either. A long schedule is shown at its beginning,
    in its middle and at its end.

    Raises:
        ValueError: another suffix, or there is no schedule to draw.
        FileError: a file cannot be read, or the picture cannot be written.
    """
    check_suffix(path)
    several = [drawn] if isinstance(drawn, Result | Row | Schedule | str | os.PathLike) else drawn
    schedules = [_titled(each, model, change) for each in several]
    try:
        save(figure(schedules, memory=memory, width=width), path)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None


def _titled(drawn: Drawn, model: Model | None, change: Callable[[Model], Model]) -> tuple[str, Schedule]:
    """A schedule, checked, and its title."""
    if isinstance(drawn, str | os.PathLike):
        path = os.fspath(drawn)
        schedule = schedule_in(path, model, change)
        return schedule.pipeline.name or os.path.splitext(os.path.basename(path))[0], verified(schedule, path)
    if isinstance(drawn, Schedule):
        return drawn.pipeline.name or "schedule", verified(drawn, "the schedule")
    title = drawn.label if isinstance(drawn, Row) else ": ".join(filter(None, (drawn.pipeline.name, drawn.reason)))
    if drawn.schedule is None:
        raise ValueError(f"{title}: there is no schedule to draw")
    return title, verified(drawn.schedule, title)
