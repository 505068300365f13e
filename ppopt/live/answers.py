"""Pages that answer the form: named schedules side by side, and what a search has found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ppopt.files import Model
from ppopt.named import Row, compare, find
from ppopt.pictures.page.document import page
from ppopt.pictures.shown import named_beside, shown


class Answer(NamedTuple):
    """A page, and what is to be said beside it; ``page`` is ``None`` where there is nothing to draw."""

    page: str | None
    messages: list[str]


def compared(model: Model, names: Sequence[str], memory: bool) -> Answer:
    """The named schedules side by side, each on its own placement; those that do not apply are said, with the reason.

    Raises:
        UnknownSchedule: nobody has one of these names.
        PipelineError: the pipeline asks for several numbers of microbatches.
    """
    wanted = [find(name).name for name in names]
    if not wanted:
        return Answer(None, ["no schedule is chosen"])
    rows = compare(model, only=wanted)
    there = [row for row in rows if row.schedule is not None]
    messages = [str(row.excluded) for row in rows if row.schedule is None]
    messages += [f"{row.label} exceeds the memory limit" for row in there if not row.within_memory]
    if not there:
        return Answer(None, messages)
    return Answer(
        page(shown([*sorted(there, key=_place)]), memory=memory, title=model.pipeline.name or "Named schedules"), messages
    )


def _place(row: Row) -> tuple[bool, float]:
    """What fits first, the shortest first."""
    return not row.within_memory, float(row.makespan or 0)


def solved(path: str, names: Sequence[str], memory: bool) -> Answer:
    """What a search has written, and named schedules beside it on the hardware of the answer.

    Raises:
        FileError, ResultError: there is no schedule in the file.
    """
    several, messages = shown(path), []
    for name in names:
        try:
            several.append(named_beside(several[0], name))
        except ValueError as error:
            messages.append(str(error))
    return Answer(page(several, memory=memory), messages)
